// Writes a template's files as a new project. Never replaces or removes a file.
import { mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { TemplateName } from './templates.ts';

const TEMPLATES = fileURLToPath(new URL('./templates', import.meta.url));

/** The project cannot be written; the message says why, and what to do. */
export class CreateError extends Error {}

/** npm's rules for new names: lower case, safe in an address, no leading dot or underscore, at most 214 characters. */
export function packageName(directory: string): string {
  const name = basename(directory)
    .toLowerCase()
    .replace(/[^a-z0-9._~-]+/g, '-')
    .replace(/^[._-]+|-+$/g, '')
    .slice(0, 214);
  return name === '' ? 'mangrove-app' : name;
}

/**
 * @throws CreateError if something is in the way. A new Git repository is not: `.git` is left as it is.
 */
export function checkTarget(directory: string): void {
  let names: readonly string[];
  try {
    names = readdirSync(directory);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return;
    if (code === 'ENOTDIR') throw new CreateError(`${directory} is a file, or is below one; choose another directory`);
    throw new CreateError(`${directory} cannot be read: ${message}`);
  }
  const others = names.filter((name) => name !== '.git');
  if (others.length === 0) return;
  const some = others.slice(0, 3).join(', ') + (others.length > 3 ? ', …' : '');
  throw new CreateError(`${directory} is not empty (${some}); choose another directory, or empty this one`);
}

/** Files of a directory and of those in it, as paths below it. */
function filesIn(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' }).filter((path) =>
    statSync(join(directory, path)).isFile(),
  );
}

/** npm leaves `.gitignore` out of packages, so names with a dot have an underscore there. */
function nameInProject(path: string): string {
  return path.replace(/^_/, '.');
}

/** @throws CreateError if the directory is not empty or cannot be written. */
export function writeProject(template: TemplateName, directory: string): void {
  checkTarget(directory);
  const source = join(TEMPLATES, template);
  const written: string[] = [];
  try {
    for (const path of filesIn(source)) {
      const target = join(directory, nameInProject(path));
      mkdirSync(dirname(target), { recursive: true });
      // `wx`: a file that has appeared since the check is not replaced.
      writeFileSync(target, contentOf(join(source, path), directory), { flag: 'wx' });
      written.push(target);
    }
  } catch (error) {
    const rest = written.length === 0 ? '' : `; ${written.length} files were written before that, and are left there`;
    throw new CreateError(`${directory}: ${(error as Error).message}${rest}`);
  }
}

function contentOf(file: string, directory: string): Buffer | string {
  if (basename(file) !== 'package.json') return readFileSync(file);
  const { name: _, ...manifest } = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
  return `${JSON.stringify({ name: packageName(directory), ...manifest }, null, 2)}\n`;
}
