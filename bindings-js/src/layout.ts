// Loaded when a layout is asked for, which few do.
export { layout } from './client/layout.ts';
