// Checks the documentation: every link must lead somewhere, the sizes on the pages must be those of the
// build, what they say of benchmarks that of the reports, the table of files that of files.mjs, and llms.txt
// and the skill what llms.mjs makes of the pages. `--write` writes all of these.
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import GithubSlugger from 'github-slugger';
import MarkdownIt from 'markdown-it';
import { figuresForPages } from '../../bindings-js/build/sizes.mjs';
import { BenchFigures } from './bench-figures.mjs';
import { fileFigures, withFiles } from './files.mjs';
import { committedFiles } from './llms.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** Copies of pages, as the package has them. */
const COPIES = join(ROOT, 'bindings-js', 'kv', 'docs');
/** Directories with generated or foreign files. */
const SKIPPED = new Set(['node_modules', 'target', 'dist', 'build', 'api', 'test-results', 'playwright-report']);
/**
 * Allowed deviation of a size from the build's, so that pages need not change with every commit.
 */
const TOLERANCE = 0.02;
/** The same for small files, in bytes. */
const TOLERATED_BYTES = 200;
/** Prefix of links on pages that are also read outside the repository. */
const { repository } = JSON.parse(readFileSync(join(ROOT, 'bindings-js', 'kv', 'package.json'), 'utf8'));
const FILES_URL = `${repository.url.replace(/^git\+|\.git$/g, '')}/blob/main/`;

const markdown = new MarkdownIt({ html: true });
const problems = [];
const report = (page, line, message) => problems.push(`${relative(ROOT, page)}:${line}: ${message}`);

function pagesUnder(directory) {
  if (directory === COPIES) return [];
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    if (entry.name.startsWith('.') || SKIPPED.has(entry.name)) return [];
    const path = join(directory, entry.name);
    if (entry.isDirectory()) return pagesUnder(path);
    return entry.name.endsWith('.md') ? [path] : [];
  });
}

/** Returns links with their lines, and the anchors that GitHub gives a page's headings. */
function readPage(path) {
  const slugger = new GithubSlugger();
  const page = { links: [], anchors: new Set() };
  const tokens = markdown.parse(readFileSync(path, 'utf8'), {});
  let line = 1;
  for (const [index, token] of tokens.entries()) {
    if (token.map) line = token.map[0] + 1;
    if (token.type !== 'inline') continue;
    const text = token.children
      .filter(({ type }) => type === 'text' || type === 'code_inline')
      .map(({ content }) => content)
      .join('');
    if (tokens[index - 1].type === 'heading_open') page.anchors.add(slugger.slug(text));
    for (const { type, attrs } of token.children) {
      if (type !== 'link_open' && type !== 'image') continue;
      const target = Object.fromEntries(attrs)[type === 'image' ? 'src' : 'href'];
      page.links.push({ line, target });
    }
  }
  return page;
}

function checkLinks(pages) {
  for (const [path, { links }] of pages) {
    for (const { line, target } of links) {
      const isFile = target.startsWith(FILES_URL);
      if (!isFile && /^[a-z]+:/.test(target)) continue;
      const [file, anchor] = (isFile ? target.slice(FILES_URL.length) : target).split('#');
      const to = file === '' ? path : join(isFile ? ROOT : dirname(path), decodeURIComponent(file));
      if (!existsSync(to)) report(path, line, `nothing is at ${target}`);
      else if (anchor !== undefined && pages.get(to)?.anchors.has(anchor) !== true)
        report(path, line, `no heading for ${target}`);
    }
  }
}

/** Matches `<!-- size: main thread -->21.5`, in KiB, with the names that the build prints. */
const FIGURE = /<!-- (size: [^>]+?) -->(\d+(?:\.\d+)?)/g;
const UNMARKED = /(?<!--> *[\d.,]*)\b\d[\d.,]* KiB after gzip/;

/** Checks that all pages state the same sizes, within the tolerance of the build's. */
function checkFigures(pages, figures) {
  const saidFirst = new Map();
  for (const path of pages.keys()) {
    for (const [index, text] of readFileSync(path, 'utf8').split('\n').entries()) {
      if (UNMARKED.test(text)) report(path, index + 1, 'a size without <!-- size: … -->');
      for (const [, what, said] of text.matchAll(FIGURE)) {
        const bytes = figures.get(what);
        if (bytes === undefined) report(path, index + 1, `the build has no figure "${what}"`);
        else if (Math.abs(Number(said) * 1024 - bytes) > Math.max(bytes * TOLERANCE, TOLERATED_BYTES)) {
          report(path, index + 1, `${what} is ${(bytes / 1024).toFixed(1)} KiB after gzip, the page says ${said}`);
        } else if ((saidFirst.get(what) ?? said) !== said) {
          report(path, index + 1, `${what} is ${said} here and ${saidFirst.get(what)} on another page`);
        }
        if (!saidFirst.has(what)) saidFirst.set(what, said);
      }
    }
  }
}

function writeFigures(pages, figures) {
  for (const path of pages.keys()) {
    const text = readFileSync(path, 'utf8');
    const written = text.replace(FIGURE, (all, what) => {
      const kib = (figures.get(what) ?? NaN) / 1024;
      return Number.isNaN(kib) ? all : `<!-- ${what} -->${kib.toFixed(1)}`;
    });
    if (written !== text) writeFileSync(path, written);
  }
}

/** Checks that pages say what the benchmarks' reports say. */
function checkBenchFigures(pages, isWriting) {
  const figures = new BenchFigures(ROOT);
  for (const path of pages.keys()) {
    const text = readFileSync(path, 'utf8');
    if (!text.includes('<!-- bench: ')) continue;
    try {
      const written = figures.written(text);
      if (isWriting && written !== text) writeFileSync(path, written);
      const [said, found] = [text, written].map((each) => each.split('\n'));
      if (!isWriting)
        said.forEach(
          (line, index) =>
            line !== found[index] && report(path, index + 1, `a report of a benchmark says: ${found[index]}`),
        );
    } catch (error) {
      report(path, 1, error.message);
    }
  }
}

/** Checks the tables of the files that pages fetch. */
function checkFiles(pages, isWriting) {
  for (const path of pages.keys()) {
    const text = readFileSync(path, 'utf8');
    const written = withFiles(text);
    if (written === text) continue;
    if (isWriting) writeFileSync(path, written);
    else
      report(
        path,
        text.split('\n').findIndex((line) => line === '<!-- files -->') + 1,
        'the table is not that of docs/reference/files.mjs',
      );
  }
}

/** Checks the files that are made from the pages. */
function checkMade(isWriting) {
  for (const [name, text] of committedFiles()) {
    const path = join(ROOT, name);
    const said = existsSync(path) ? readFileSync(path, 'utf8') : '';
    if (said === text) continue;
    if (isWriting) writeFileSync(path, text);
    else {
      const lines = said.split('\n');
      const line = text.split('\n').findIndex((each, at) => each !== lines[at]) + 1;
      report(path, line, 'not what the pages make: npm run llms --workspace mangrove-reference');
    }
  }
}

const pages = new Map(pagesUnder(ROOT).map((path) => [path, readPage(path)]));
checkLinks(pages);
const dist = join(ROOT, 'bindings-js', 'kv', 'dist');
const figures = new Map([...figuresForPages(dist), ...fileFigures(dist)]);
const isWriting = process.argv.includes('--write');
checkFiles(pages, isWriting);
if (isWriting) writeFigures(pages, figures);
checkFigures(pages, figures);
checkBenchFigures(pages, isWriting);
checkMade(isWriting);
for (const problem of problems) process.stderr.write(`${problem}\n`);
process.stdout.write(`${pages.size} pages, ${problems.length} problems\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
