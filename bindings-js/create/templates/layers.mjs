// What each template consists of: directories that are laid over each other, a later file in place of an earlier one.
export const LAYERS = {
  vanilla: ['common', 'page', 'vanilla'],
  react: ['common', 'page', 'react'],
  vue: ['common', 'page', 'vue'],
  svelte: ['common', 'page', 'svelte'],
  pwa: ['common', 'page', 'vanilla', 'pwa'],
  node: ['common', 'node'],
};
