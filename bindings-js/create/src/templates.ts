// The templates, by the names that `--template` takes.
export const TEMPLATES = {
  vanilla: 'a page in TypeScript without a framework, built by Vite',
  react: 'a page with React, built by Vite',
  vue: 'a page with Vue, built by Vite',
  svelte: 'a page with Svelte, built by Vite',
  pwa: 'a page to install that works offline, built by Vite',
  node: 'a script for Node',
} as const;

export type TemplateName = keyof typeof TEMPLATES;

export function isTemplate(name: string): name is TemplateName {
  return Object.hasOwn(TEMPLATES, name);
}
