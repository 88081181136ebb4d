#!/usr/bin/env node
// `npm create mangrove-kv`: asks what is missing, and writes a new project.
import { readFileSync } from 'node:fs';
import { relative, resolve } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline/promises';
import { parseArgs } from 'node:util';
import { CreateError, checkTarget, writeProject } from './project.ts';
import { TEMPLATES, isTemplate } from './templates.ts';
import type { TemplateName } from './templates.ts';

const DEFAULT_DIRECTORY = 'mangrove-app';

const EXIT_FAILED = 1;
const EXIT_USAGE = 2;
const EXIT_INTERRUPTED = 130;

const HELP = `Usage: npm create mangrove-kv [directory] -- [options]

Writes a new project into the directory, which must not exist or be empty. Nothing is overwritten.
Asks for what is not given, if there is a terminal.

Options:
  -t, --template <name>  ${Object.keys(TEMPLATES).join(', ')}
  -h, --help             show this
  -v, --version          show the version

Templates:
${Object.entries(TEMPLATES)
  .map(([name, text]) => `  ${name.padEnd(8)} ${text}`)
  .join('\n')}

Exit codes: 0 the project is there, ${EXIT_FAILED} it could not be written, ${EXIT_USAGE} wrong arguments, ${EXIT_INTERRUPTED} interrupted
`;

/** What the user typed is not what the tool understands. */
class UsageError extends Error {}
class Interrupted extends Error {}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        template: { type: 'string', short: 't' },
        help: { type: 'boolean', short: 'h' },
        version: { type: 'boolean', short: 'v' },
      },
    });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

/** Asks on the terminal; the end of the input and Ctrl-C are `Interrupted`. */
async function ask(question: string): Promise<string> {
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  const ended = new Promise<never>((_, reject) => {
    terminal.once('close', () => reject(new Interrupted()));
  });
  try {
    return (await Promise.race([terminal.question(question), ended])).trim();
  } finally {
    // Closing an answered question must not be an unhandled rejection.
    ended.catch(() => undefined);
    terminal.close();
  }
}

async function askDirectory(): Promise<string> {
  return (await ask(`Directory (${DEFAULT_DIRECTORY}): `)) || DEFAULT_DIRECTORY;
}

async function askTemplate(): Promise<TemplateName> {
  const names = Object.keys(TEMPLATES) as TemplateName[];
  const list = names.map((name, at) => `  ${at + 1}. ${name.padEnd(8)} ${TEMPLATES[name]}`).join('\n');
  process.stdout.write(`${list}\n`);
  for (;;) {
    const answer = (await ask('Template (1): ')) || '1';
    const name = names[Number(answer) - 1] ?? answer;
    if (isTemplate(name)) return name;
    process.stdout.write(`Type a number from 1 to ${names.length}, or a name.\n`);
  }
}

/** The package manager that runs this, as it announces itself to the programs that it starts. */
function packageManager(): string {
  const name = process.env['npm_config_user_agent']?.split('/')[0] ?? 'npm';
  return ['npm', 'pnpm', 'yarn', 'bun'].includes(name) ? name : 'npm';
}

function nextSteps(directory: string, template: TemplateName): string {
  const manager = packageManager();
  const run = (script: string): string => (manager === 'yarn' || manager === 'pnpm' ? '' : 'run ') + script;
  const path = relative(process.cwd(), directory);
  const steps = [
    ...(path === '' ? [] : [`cd ${/^[\w./-]+$/.test(path) ? path : JSON.stringify(path)}`]),
    `${manager} install`,
    template === 'node' ? `${manager} start` : `${manager} ${run('dev')}`,
  ];
  return steps.map((step) => `  ${step}\n`).join('');
}

async function main(args: readonly string[]): Promise<void> {
  const { values, positionals } = parse(args);
  if (values.help) {
    process.stdout.write(HELP);
    return;
  }
  if (values.version) {
    const manifest = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
    process.stdout.write(`${(JSON.parse(manifest) as { version: string }).version}\n`);
    return;
  }
  const { template: named } = values;
  if (positionals.length > 1) throw new UsageError(`one directory, not ${positionals.length}: ${positionals.join(' ')}`);
  if (positionals[0] === '') throw new UsageError('the directory is empty');
  if (named !== undefined && !isTemplate(named))
    throw new UsageError(`no template is called ${JSON.stringify(named)}; there are ${Object.keys(TEMPLATES).join(', ')}`);
  const isTerminal = process.stdin.isTTY === true && process.stdout.isTTY === true;
  if (!isTerminal && positionals[0] === undefined) throw new UsageError('the directory is missing');
  if (!isTerminal && named === undefined) throw new UsageError('--template is missing');

  const directory = resolve(positionals[0] ?? (await askDirectory()));
  // Before the second question: its answer would be in vain.
  checkTarget(directory);
  const template = named ?? (await askTemplate());
  writeProject(template, directory);
  process.stdout.write(`\n${directory} is a project of the template ${template}. Next:\n\n${nextSteps(directory, template)}`);
}

main(process.argv.slice(2)).catch((error: unknown) => {
  if (error instanceof Interrupted) {
    process.stderr.write('\nNothing was written.\n');
    process.exitCode = EXIT_INTERRUPTED;
  } else if (error instanceof UsageError) {
    process.stderr.write(`create-mangrove-kv: ${error.message}\nnpm create mangrove-kv -- --help shows how it is used.\n`);
    process.exitCode = EXIT_USAGE;
  } else if (error instanceof CreateError) {
    process.stderr.write(`create-mangrove-kv: ${error.message}\n`);
    process.exitCode = EXIT_FAILED;
  } else {
    throw error;
  }
});
