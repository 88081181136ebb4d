// Checks the pages for people: that every link leads somewhere, and that the sizes they name are those of the build.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import GithubSlugger from 'github-slugger';
import MarkdownIt from 'markdown-it';
import { totalSizes } from '../../bindings-js/build-sizes.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** What no person wrote, or wrote for this repository. */
const SKIPPED = new Set(['node_modules', 'target', 'dist', 'build', 'api', 'test-results', 'playwright-report']);
/** How far a size on a page may be from the measured one: a page is not to change with every commit. */
const TOLERANCE = 0.05;

const markdown = new MarkdownIt({ html: true });
const problems = [];
const report = (page, line, message) => problems.push(`${relative(ROOT, page)}:${line}: ${message}`);

function pagesUnder(directory) {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    if (entry.name.startsWith('.') || SKIPPED.has(entry.name)) return [];
    const path = join(directory, entry.name);
    if (entry.isDirectory()) return pagesUnder(path);
    return entry.name.endsWith('.md') ? [path] : [];
  });
}

/** Links with their lines, and the anchors that GitHub gives a page's headings. */
function readPage(path) {
  const slugger = new GithubSlugger();
  const page = { links: [], anchors: new Set() };
  const tokens = markdown.parse(readFileSync(path, 'utf8'), {});
  let line = 1;
  for (const [index, token] of tokens.entries()) {
    if (token.map) line = token.map[0] + 1;
    if (token.type !== 'inline') continue;
    const text = token.children.filter(({ type }) => type === 'text' || type === 'code_inline').map(({ content }) => content).join('');
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
      if (/^[a-z]+:/.test(target)) continue;
      const [file, anchor] = target.split('#');
      const to = file === '' ? path : join(dirname(path), decodeURIComponent(file));
      if (!existsSync(to)) report(path, line, `nothing is at ${target}`);
      else if (anchor !== undefined && pages.get(to)?.anchors.has(anchor) !== true) report(path, line, `no heading for ${target}`);
    }
  }
}

/** `<!-- size: main thread -->21.5 KiB`, by the names that the build prints. */
function checkSizes(pages) {
  const sizes = totalSizes(join(ROOT, 'bindings-js', 'dist'));
  for (const path of pages.keys()) {
    for (const [index, text] of readFileSync(path, 'utf8').split('\n').entries()) {
      for (const [, what, said] of text.matchAll(/<!-- size: ([^>]+?) -->([\d.]+)/g)) {
        const bytes = sizes.get(what)?.gzip;
        if (bytes === undefined) report(path, index + 1, `the build prints no size "${what}"`);
        else if (Math.abs(Number(said) * 1024 / bytes - 1) > TOLERANCE) {
          report(path, index + 1, `${what} has ${(bytes / 1024).toFixed(1)} KiB after gzip, the page says ${said}`);
        }
      }
    }
  }
}

const pages = new Map(pagesUnder(ROOT).map((path) => [path, readPage(path)]));
checkLinks(pages);
checkSizes(pages);
for (const problem of problems) process.stderr.write(`${problem}\n`);
process.stdout.write(`${pages.size} pages, ${problems.length} problems\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
