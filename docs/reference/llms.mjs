// Makes what programs that write programs read: `llms.txt` (llmstxt.org), `llms-full.txt`, and a skill
// (agentskills.io), all from the pages for people. `npm run docs` writes them; the check of the links
// compares those that are committed with the pages.
//
//     node llms.mjs          llms.txt and the skill, which are committed
//     node llms.mjs --full   llms-full.txt in docs/api, which is not
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import GithubSlugger from 'github-slugger';
import MarkdownIt from 'markdown-it';
import { PAGES, withoutMarks } from '../../bindings-js/build/pages.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const { repository, description } = JSON.parse(readFileSync(join(ROOT, 'bindings-js', 'kv', 'package.json'), 'utf8'));
const REPOSITORY = repository.url.replace(/^git\+|\.git$/g, '');
/** For readers with a browser, which may be in another repository. */
const FILES_URL = `${REPOSITORY}/blob/main/`;
/** For programs: Markdown, without a page around it. */
const RAW_URL = `${REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/main/`;

/** Before a block of a page, or before a heading for all that is below it: it belongs to the skill. */
const MARK = '<!-- skill -->';

export const SKILL = 'skills/mangrove-kv/SKILL.md';

/** Pages of llms.txt by their headings there; the page of the guide is listed by its sections. */
const LISTED = {
  'Use': ['API', 'MISTAKES', 'FROM-DEXIE', 'ADAPTERS', 'PERSISTERS', 'TEST-RUNNERS', 'STORAGE', 'ENCRYPTION'],
  'Replication': ['REPLICATION', 'REPLICATION-SERVERS'],
  'Optional': ['COMPARISON', 'DURABILITY', 'BROWSERS', 'SHARING', 'RUST', 'SECURITY', 'FORMAT'],
};
/** Pages of llms-full.txt: all that a user's program may need. */
const FULL = ['GUIDE', ...LISTED.Use, ...LISTED.Replication, 'DURABILITY'];
/** Pages that the skill takes its parts from. */
const SKILL_PAGES = ['GUIDE', 'MISTAKES', 'API'];

const markdown = new MarkdownIt({ html: true });
const pathOf = (name) => `docs/${name}.md`;

/** The blocks of a page: their kinds, lines and, of headings, levels and titles. */
function blocksOf(text) {
  const lines = text.split('\n');
  const tokens = markdown.parse(text, {});
  return tokens.flatMap((token, at) => {
    if (token.level !== 0 || token.map === null || token.nesting < 0) return [];
    const [from, to] = token.map;
    const block = { type: token.type, text: lines.slice(from, to).join('\n').trimEnd() };
    if (token.type !== 'heading_open') return [block];
    return [{ ...block, level: Number(token.tag.slice(1)), title: tokens[at + 1].content }];
  });
}

const readPage = (name) => readFileSync(join(ROOT, pathOf(name)), 'utf8');

/** Makes links of a page work anywhere. What is in code is no link. */
function withAbsoluteLinks(text, path, base = FILES_URL) {
  return text
    .split(/(^```[^]*?^```$|`[^`\n]*`)/m)
    .map((part, at) => {
      if (at % 2 === 1) return part;
      return part.replaceAll(/\]\(([^)\s]+)\)/g, (all, target) => {
        if (/^[a-z]+:/.test(target)) return all;
        const [, file, anchor = ''] = /^([^#]*)(#.*)?$/.exec(target);
        const to = file === '' ? path : posix.join(dirname(path), file);
        return `](${base}${to}${anchor})`;
      });
    })
    .join('');
}

/** The first sentence of a paragraph as one line, without links. */
function firstSentence(text) {
  const line = text
    .replaceAll(/<!--[^]*?-->/g, '')
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/\s+/g, ' ');
  return /^(.*?[.:])(?= |$)/.exec(line)?.[1].replace(/:$/, '.') ?? line;
}

/** The first sentence below a heading, or `undefined` if something else is first there. */
function summary(blocks, at) {
  const next = blocks.slice(at + 1).find(({ type }) => type !== 'html_block');
  return next?.type === 'paragraph_open' ? firstSentence(next.text) : undefined;
}

const listItem = (title, url, text) => `- [${title}](${url})${text === undefined ? '' : `: ${text}`}`;

function pageItem(name) {
  const blocks = blocksOf(readPage(name));
  const at = blocks.findIndex(({ level }) => level === 1);
  return listItem(blocks[at].title, `${RAW_URL}${pathOf(name)}`, summary(blocks, at));
}

function guideItems() {
  const slugger = new GithubSlugger();
  const blocks = blocksOf(readPage('GUIDE'));
  const url = `${RAW_URL}${pathOf('GUIDE')}`;
  return blocks.flatMap(({ level, title }, at) => {
    if (level === undefined) return [];
    const slug = slugger.slug(title);
    if (level === 1) return [listItem(title, url, 'one page with the sections below')];
    return level === 2 ? [listItem(title, `${url}#${slug}`, summary(blocks, at))] : [];
  });
}

/** llms.txt: a title, what it is, how it begins, and lists of pages. */
export function llmsText() {
  const readme = blocksOf(readFileSync(join(ROOT, 'README.md'), 'utf8'));
  const [title, about, example] = readme;
  return [
    title.text,
    about.text.replaceAll(/^/gm, '> '),
    example.text,
    '`npm create mangrove-kv` starts a project. Before the first release the packages are not on npm: see [Install](' +
      `${RAW_URL}README.md#install).`,
    '## Guide',
    guideItems().join('\n'),
    ...Object.entries(LISTED).flatMap(([heading, names]) => [`## ${heading}`, names.map(pageItem).join('\n')]),
  ]
    .join('\n\n')
    .concat('\n');
}

/** All pages that a user's program may need, as one. */
export function llmsFullText() {
  return FULL.map((name) => withAbsoluteLinks(withoutMarks(readPage(name)), pathOf(name), RAW_URL)).join('\n');
}

/** The marked blocks of a page, each section with its heading. The title of the first page is the skill's own. */
function markedParts(name, nth) {
  const parts = [];
  const deeper = nth === 0 ? 0 : 1;
  /** Headings above the block, and the level of the one whose section is taken as a whole. */
  let above = [];
  let whole;
  let isMarked = false;
  for (const block of blocksOf(readPage(name))) {
    if (block.type === 'html_block' && block.text === MARK) {
      isMarked = true;
      continue;
    }
    const { level, text } = block;
    if (level !== undefined) {
      if (whole !== undefined && level <= whole) whole = undefined;
      if (isMarked && whole === undefined) whole = level;
      above = [...above.filter((heading) => heading.level < level), { ...block, isWritten: false }];
    } else if (isMarked || whole !== undefined) {
      for (const heading of above.filter(({ isWritten }) => !isWritten)) {
        if (heading.level + deeper > 1) parts.push(`${'#'.repeat(heading.level + deeper)} ${heading.title}`);
        heading.isWritten = true;
      }
      parts.push(withAbsoluteLinks(text, pathOf(name)));
    }
    isMarked = false;
  }
  if (parts.length === 0) throw new Error(`${pathOf(name)} has nothing for the skill`);
  return parts;
}

/** The skill: what a program has to know before it changes code that uses the package. */
export function skillText() {
  const installed = PAGES.map((file) => {
    const { title } = blocksOf(readPage(file.replace('.md', ''))).find(({ level }) => level === 1);
    return `- \`${file}\`: [${title}](${FILES_URL}docs/${file})`;
  });
  return [
    [
      '---',
      'name: mangrove-kv',
      'description: >-',
      `  How to use mangrove-kv (${description.replace(/^./, (letter) => letter.toLowerCase())}):`,
      '  reading, writing, ranges, indexes, transactions, live queries in React, Vue and Svelte, errors, and first',
      '  mistakes. Use when code imports mangrove-kv or @mangrove-kv/…, or is to store data with it.',
      'license: MIT OR Apache-2.0',
      '---',
    ].join('\n'),
    `<!-- Made from the pages in docs by \`npm run docs\`: change those. -->`,
    '# mangrove-kv',
    ...SKILL_PAGES.flatMap(markedParts),
    '## More',
    'An installed package has the pages of its version in `node_modules/mangrove-kv/docs`:',
    installed.join('\n'),
  ]
    .join('\n\n')
    .concat('\n');
}

/** The committed files and what should be in them, by their paths. */
export function committedFiles() {
  return new Map([
    ['llms.txt', llmsText()],
    [SKILL, skillText()],
  ]);
}

function write(path, text) {
  const file = join(ROOT, path);
  mkdirSync(dirname(file), { recursive: true });
  if (!existsSync(file) || readFileSync(file, 'utf8') !== text) writeFileSync(file, text);
  process.stdout.write(`${path}: ${(Buffer.byteLength(text) / 1024).toFixed(1)} KiB\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes('--full')) write('docs/api/llms-full.txt', llmsFullText());
  else for (const [path, text] of committedFiles()) write(path, text);
}
