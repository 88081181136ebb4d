// The pages for users that an installed package has.
export const PAGES = [
  'GUIDE',
  'API',
  'MISTAKES',
  'STORAGE',
  'DURABILITY',
  'ENCRYPTION',
  'PERSISTERS',
  'TEST-RUNNERS',
].map((name) => `${name}.md`);

/** A page without the marks of what is in the skill as well (docs/reference/llms.mjs). */
export const withoutMarks = (text) => text.replaceAll(/^<!-- skill -->\n/gm, '');
