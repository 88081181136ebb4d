import { join } from 'node:path';

export const PAGES = ['vanilla', 'react', 'vue', 'svelte', 'pwa'] as const;
export const TEMPLATES = [...PAGES, 'node'] as const;

/** The directory of a template's project, which the setup has made. */
export function projectOf(template: (typeof TEMPLATES)[number]): string {
  const directory = process.env['MANGROVE_PROJECTS'];
  if (directory === undefined) throw new Error('the setup has not run');
  return join(directory, template);
}
