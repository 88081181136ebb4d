// Runs every block of JavaScript in the skill and in llms.txt, which the build of the documentation makes from the pages
// (docs/reference/llms.mjs). `node .ci/test.mjs links` finds them if they are not what the pages make.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { withPath } from './support/kit.ts';

/** Inside the package, so that the examples can import it by name. */
const DIRECTORY = fileURLToPath(new URL('../build/skill', import.meta.url));

mkdirSync(DIRECTORY, { recursive: true });
after(() => rmSync(DIRECTORY, { recursive: true, force: true }));

const readPage = (name: string): string => readFileSync(new URL(`../../../${name}`, import.meta.url), 'utf8');
const blocksOf = (page: string, language = 'js'): string[] =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\`$`, 'gm'))].map(([, code]) => code as string);

const skill = readPage('skills/mangrove-kv/SKILL.md');
const pages = readPage('docs/GUIDE.md') + readPage('docs/MISTAKES.md') + readPage('docs/API.md');
const [head, ...examples] = blocksOf(skill);

async function run(file: string, code: string): Promise<void> {
  const path = join(DIRECTORY, file);
  writeFileSync(path, code);
  assert.ok(await import(pathToFileURL(path).href));
}

test('the skill has the front matter of skills, and is short enough for one', () => {
  const [, matter = '', body = ''] = /^---\n([^]*?)\n---\n([^]*)$/.exec(skill) ?? [];
  assert.match(matter, /^name: mangrove-kv$/m);
  const [, description = ''] = /^description: >-\n((?: {2}.*\n?)+)/m.exec(matter) ?? [];
  const text = description.trim().replaceAll(/\s+/g, ' ');
  assert.ok(text.length > 100 && text.length <= 1024, `${text.length}`);
  assert.match(text, /Use when/);
  assert.ok(body.split('\n').length <= 500, 'skills have at most 500 lines: mark less in docs');
});

test('the skill has the imports, the essentials and all first mistakes', () => {
  assert.match(head ?? '', /from 'mangrove-kv'/);
  for (const heading of [
    'Start',
    'Collections',
    'Indexes',
    'Transactions',
    'Following changes',
    'Errors',
    'First mistakes',
  ])
    assert.match(skill, new RegExp(`^## ${heading}$`, 'm'));
  for (const [, heading] of readPage('docs/MISTAKES.md').matchAll(/^## (.*)$/gm))
    assert.ok(skill.includes(`\n### ${heading}\n`), heading);
  assert.ok(examples.length >= 12, `${examples.length}`);
});

for (const [index, example] of examples.entries()) {
  test(`example ${index + 1} of the skill: ${example.split('\n')[1]?.trim()}`, (t) =>
    withPath(async (directory) => {
      t.mock.method(console, 'log', () => undefined);
      const code = example.replaceAll(/'(guide|mistakes)'/g, JSON.stringify(directory));
      await run(`skill-${index}.mjs`, `${head}${code}`);
    }));
}

test('what does not run here is checked where it comes from', () => {
  for (const language of ['tsx', 'vue', 'svelte', 'ts'])
    for (const block of blocksOf(skill, language)) assert.ok(blocksOf(pages, language).includes(block), block);
  const languages = new Set([...skill.matchAll(/^```(\w+)$/gm)].map(([, language]) => language));
  assert.deepEqual([...languages].sort(), ['js', 'svelte', 'tsx', 'vue']);
});

const llms = readPage('llms.txt');

test('llms.txt has the form of such files', () => {
  const [title, blank, quote] = llms.split('\n');
  assert.deepEqual([title, blank], ['# Mangrove', '']);
  assert.match(quote ?? '', /^> /);
  const [, ...sections] = llms.split(/^## .*$/m);
  assert.ok(sections.length >= 4);
  for (const section of sections)
    for (const line of section.trim().split('\n')) assert.match(line, /^- \[[^\]]+\]\(https:\/\/[^)\s]+\)(: .+)?$/);
});

test('the example of llms.txt runs', (t) =>
  withPath(async (directory) => {
    const [example, ...others] = blocksOf(llms);
    assert.deepEqual(others, []);
    const log = t.mock.method(console, 'log', () => undefined);
    await run('llms.mjs', (example ?? '').replace("open('notes')", `open(${JSON.stringify(directory)})`));
    assert.deepEqual(log.mock.calls.at(-1)?.arguments, [1]);
  }));
