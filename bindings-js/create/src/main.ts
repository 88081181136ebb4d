#!/usr/bin/env node
// `npm create mangrove-kv`: asks what is missing, and writes a new project.
import { readFileSync } from 'node:fs';
import { relative, resolve } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
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
    throw new UsageError((error as Error).message.replace(/\. To specify.*/s, ''));
  }
}

/** Asks on the terminal, line by line; the end of the input and Ctrl-C are `Interrupted`. */
class Questions {
  readonly #terminal = createInterface({ input: process.stdin, output: process.stdout });
  /** An iterator keeps lines that were typed ahead of their question. */
  readonly #lines = this.#terminal[Symbol.asyncIterator]();

  async #ask(question: string): Promise<string> {
    this.#terminal.setPrompt(question);
    this.#terminal.prompt();
    const { value, done } = await this.#lines.next();
    if (done) throw new Interrupted();
    return value.trim();
  }

  async directory(): Promise<string> {
    return (await this.#ask(`Directory (${DEFAULT_DIRECTORY}): `)) || DEFAULT_DIRECTORY;
  }

  async template(): Promise<TemplateName> {
    const names = Object.keys(TEMPLATES) as TemplateName[];
    const list = names.map((name, at) => `  ${at + 1}. ${name.padEnd(8)} ${TEMPLATES[name]}`).join('\n');
    process.stdout.write(`${list}\n`);
    for (;;) {
      const answer = (await this.#ask('Template (1): ')) || '1';
      const name = names[Number(answer) - 1] ?? answer;
      if (isTemplate(name)) return name;
      process.stdout.write(`Type a number from 1 to ${names.length}, or a name.\n`);
    }
  }

  close(): void {
    this.#terminal.close();
  }
}

/** Where to write which template: as the arguments say, or the user's answers. */
async function decide(
  argument: string | undefined,
  named: TemplateName | undefined,
): Promise<{ directory: string; template: TemplateName }> {
  if (argument !== undefined && named !== undefined) return { directory: resolve(argument), template: named };
  if (process.stdin.isTTY !== true || process.stdout.isTTY !== true)
    throw new UsageError(argument === undefined ? 'the directory is missing' : '--template is missing');
  const questions = new Questions();
  try {
    const directory = resolve(argument ?? (await questions.directory()));
    // Before the second question: its answer would be in vain.
    checkTarget(directory);
    return { directory, template: named ?? (await questions.template()) };
  } finally {
    questions.close();
  }
}

/** The package manager that runs this, as it announces itself to the programs that it starts. */
function packageManager(): string {
  const name = process.env['npm_config_user_agent']?.split('/')[0] ?? 'npm';
  return ['npm', 'pnpm', 'yarn', 'bun'].includes(name) ? name : 'npm';
}

/** A path as one word of a shell. */
function quoted(path: string): string {
  if (/^[\w./-]+$/.test(path)) return path;
  const isLiteral = process.platform === 'win32' || !/["$`\\!]/.test(path);
  return isLiteral ? `"${path}"` : `'${path.replaceAll("'", "'\\''")}'`;
}

function nextSteps(directory: string, template: TemplateName): string {
  const manager = packageManager();
  const run = (script: string): string => (manager === 'yarn' || manager === 'pnpm' ? '' : 'run ') + script;
  const path = relative(process.cwd(), directory);
  const steps = [
    ...(path === '' ? [] : [`cd ${quoted(path.startsWith('-') ? `./${path}` : path)}`]),
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
  if (positionals.length > 1)
    throw new UsageError(`one directory, not ${positionals.length}: ${positionals.join(' ')}`);
  if (positionals[0] === '') throw new UsageError('the directory is empty');
  if (named !== undefined && !isTemplate(named))
    throw new UsageError(
      `no template is called ${JSON.stringify(named)}; there are ${Object.keys(TEMPLATES).join(', ')}`,
    );
  const { directory, template } = await decide(positionals[0], named);
  writeProject(template, directory);
  process.stdout.write(
    `\n${directory} is a project of the template ${template}. Next:\n\n${nextSteps(directory, template)}`,
  );
}

main(process.argv.slice(2)).catch((error: unknown) => {
  if (error instanceof Interrupted) {
    process.stderr.write('\nNothing was written.\n');
    process.exitCode = EXIT_INTERRUPTED;
  } else if (error instanceof UsageError) {
    process.stderr.write(
      `create-mangrove-kv: ${error.message}\nnpm create mangrove-kv -- --help shows how it is used.\n`,
    );
    process.exitCode = EXIT_USAGE;
  } else if (error instanceof CreateError) {
    process.stderr.write(`create-mangrove-kv: ${error.message}\n`);
    process.exitCode = EXIT_FAILED;
  } else {
    throw error;
  }
});
