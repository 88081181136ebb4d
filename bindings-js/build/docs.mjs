// Copies the pages for users into docs/ of the package, so that the guide of an installed version is that version's. Links to what the package does not
// have become addresses in the repository.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { ROOT } from '../../.ci/tools.mjs';
import { KV } from './bundle.mjs';
import { PAGES, withoutMarks } from './pages.mjs';

const TARGET = join(KV, 'docs');

const { repository } = JSON.parse(readFileSync(join(KV, 'package.json'), 'utf8'));
const FILES_URL = `${repository.url.replace(/^git\+|\.git$/g, '')}/blob/main/`;

/** Where a page's link leads in the package. What is no file, as in code, stays as it is. */
function linkTo(target) {
  const [, file, anchor] = /^([^#]*)(#.*)?$/.exec(target);
  if (file === '' || /^[a-z]+:/.test(file) || PAGES.includes(file)) return target;
  const path = posix.join('docs', file);
  if (!existsSync(join(ROOT, path))) return target;
  return path === 'bindings-js/kv/README.md' ? `../README.md${anchor ?? ''}` : `${FILES_URL}${path}${anchor ?? ''}`;
}

rmSync(TARGET, { recursive: true, force: true });
mkdirSync(TARGET);
for (const page of PAGES) {
  const text = readFileSync(join(ROOT, 'docs', page), 'utf8');
  writeFileSync(
    join(TARGET, page),
    withoutMarks(text).replaceAll(/\]\(([^)\s]+)\)/g, (_, target) => `](${linkTo(target)})`),
  );
}
