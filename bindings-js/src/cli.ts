#!/usr/bin/env node
// `mangrove-kv`: the command line tool. Its verbs, options, output and exit codes are those of the native tool, whose page has them.
import * as fs from 'node:fs';
import { PROGRAM, helpOf, parseArguments } from './cli/arguments.ts';
import type { Parsed, Usage } from './cli/arguments.ts';
import { BENCH, bench } from './cli/bench.ts';
import { backup, recover, restore } from './cli/copies.ts';
import { dump, load } from './cli/dump.ts';
import { EXIT_FAILURE, NobodyReads, UsageError, codeOf, exitCodeOf } from './cli/failure.ts';
import { COLLECTION, DURABILITY, RANGE, count, del, get, rename, scan, set } from './cli/records.ts';
import { compact, list, stat, verify } from './cli/reports.ts';
import { note, print } from './cli/streams.ts';

const VERIFY_CODES = 'Exit codes: 0 nothing is damaged, 1 it could not be checked, 2 damage was found.';
const RECOVER_CODES = 'Exit codes: 0 the new database has exactly the newest state, 1 it could not be made, 2 something was lost, or may have been.';

type Verb = Omit<Usage, 'verb' | 'required'> & { readonly required?: number; readonly run: (parsed: Parsed) => Promise<void> };

const PROGRESS = { progress: false } as const;

const VERBS: Readonly<Record<string, Verb>> = {
  get: { about: 'Prints the value of a key.', positionals: ['PATH', 'KEY'], options: COLLECTION, run: get },
  set: { about: 'Stores a record; without VALUE it reads standard input.', positionals: ['PATH', 'KEY', 'VALUE'], required: 2, options: { ...COLLECTION, ...DURABILITY }, run: set },
  del: { about: 'Removes a record; prints whether there was one.', positionals: ['PATH', 'KEY'], options: { ...COLLECTION, ...DURABILITY }, run: del },
  scan: { about: 'Prints the records of a range, one {"key":…,"value":…} a line.', positionals: ['PATH'], options: { ...COLLECTION, ...RANGE, reverse: false, limit: 'COUNT', 'keys-only': false }, run: scan },
  count: { about: 'Prints the number of records in a range.', positionals: ['PATH'], options: { ...COLLECTION, ...RANGE }, run: count },
  stat: { about: 'Prints figures of the database and its collections.', positionals: ['PATH'], options: {}, run: stat },
  list: { about: 'Prints the collections, one {"name":…,"count":…,"keyCodec":…,"valueCodec":…} a line.', positionals: ['PATH'], options: {}, run: list },
  rename: { about: 'Gives a collection another name; prints whether there was one.', positionals: ['PATH', 'FROM', 'TO'], options: DURABILITY, run: rename },
  verify: { about: 'Reads and checks the whole file; exit code 2 if it is damaged.', positionals: ['PATH'], options: {}, help: VERIFY_CODES, run: verify },
  recover: { about: 'Writes what can be read of a damaged database into a new one; exit code 2 if something was lost.', positionals: ['SOURCE', 'TARGET'], options: {}, help: RECOVER_CODES, run: recover },
  dump: { about: 'Prints everything in the form that load reads.', positionals: ['PATH'], options: COLLECTION, run: dump },
  load: { about: 'Stores the records of standard input, one {"key":…,"value":…} a line.', positionals: ['PATH'], options: { ...COLLECTION, ...DURABILITY, batch: 'LINES', ack: false }, run: load },
  compact: { about: 'Gives free space inside the data file back to the file system.', positionals: ['PATH'], options: PROGRESS, run: compact },
  backup: { about: 'Writes everything to one new file, which restore reads; - is standard output.', positionals: ['PATH', 'FILE'], options: { ...PROGRESS, since: 'VERSION' }, run: backup },
  restore: { about: 'Makes a new database from a file that backup wrote; - is standard input.', positionals: ['FILE', 'PATH'], options: { ...PROGRESS, incremental: false, overwrite: false, force: false }, run: restore },
  bench: { about: 'Measures a new database, which it removes afterwards.', positionals: ['PATH'], options: BENCH, run: bench },
};

/** Other names of verbs. */
const ALIASES: Readonly<Record<string, string>> = { delete: 'del', stats: 'stat', export: 'dump', import: 'load' };

function usageOf(verb: string): Usage {
  const found = VERBS[verb] as Verb;
  return { required: found.positionals.length, ...found, verb };
}

function help(): string {
  const aliasOf = (verb: string): string => Object.entries(ALIASES).filter(([, of]) => of === verb).map(([alias]) => ` [${alias}]`).join('');
  const verbs = Object.entries(VERBS).map(([verb, { about }]) => `  ${verb.padEnd(8)} ${about}${aliasOf(verb)}`);
  return `Reads and writes Mangrove databases

Usage: ${PROGRAM} <VERB>

${verbs.join('\n')}

${PROGRAM} help VERB has a verb's options. PATH is a database's directory, or a single data file as a browser exports it.

Keys and values are JSON: ${PROGRAM} set DIR '"name"' '{"born":1815}'. What JSON cannot say is an object with one property:
{"$bytes":"base64"}, {"$date":"1815-12-10T00:00:00.000Z"}, {"$bigint":"123"}, {"$number":"NaN"} and others. A property of your own
that begins with $ is written with $$.

Exit codes: 0 done, 1 wrong usage or any other failure, 2 damage was found.`;
}

function version(): string {
  const manifest = JSON.parse(fs.readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string };
  return `${PROGRAM} ${manifest.version}`;
}

async function run(args: readonly string[]): Promise<void> {
  const [first = '', ...rest] = args;
  if (['--help', '-h'].includes(first) || (first === 'help' && rest.length === 0)) return print(help());
  if (['--version', '-V'].includes(first)) return print(version());
  const name = first === 'help' ? rest[0] as string : first;
  const verb = Object.hasOwn(ALIASES, name) ? ALIASES[name] as string : name;
  if (!Object.hasOwn(VERBS, verb)) {
    throw new UsageError(verb === '' ? help() : `error: there is no verb ${verb}\n\nUsage: ${PROGRAM} <VERB>\n\n${PROGRAM} --help has the verbs`);
  }
  const usage = usageOf(verb);
  if (first === 'help' || rest.includes('--help') || rest.includes('-h')) return print(helpOf(usage));
  await (VERBS[verb] as Verb).run(parseArguments(usage, rest));
}

async function main(): Promise<number> {
  try {
    await run(process.argv.slice(2));
    return 0;
  } catch (error) {
    if (error instanceof UsageError) {
      note(error.message);
      return EXIT_FAILURE;
    }
    // As the native tool has it, for scripts that look.
    const message = error instanceof Error ? error.message : String(error);
    if (!(error instanceof NobodyReads)) note(`mangrove: ${codeOf(error) ?? 'KV_IO'}: ${message.replaceAll(/[\n\r]+/g, ' ')}`);
    return exitCodeOf(error);
  }
}

process.exitCode = await main();
