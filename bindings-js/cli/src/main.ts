#!/usr/bin/env node
// `mangrove-kv`: the command line tool. README.md describes its input and output.
import process from 'node:process';
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import type { Durability, Encryption } from 'mangrove-kv';
import packageJson from '../package.json' with { type: 'json' };
import { RAW_FORMS } from './codecs.ts';
import type { RawForm } from './codecs.ts';
import { BrokenPipe, EXIT_FAILURE, PROGRAM, exitCodeOf, invalid, lineOf } from './failure.ts';
import { readKey, readPassphrase } from './key-file.ts';
import { note, writeOutput } from './output.ts';
import type { StoreOptions } from './store.ts';
import { backup, restore } from './verbs/copies.ts';
import { bench, list, rename, stat } from './verbs/figures.ts';
import { dump, load } from './verbs/lines.ts';
import { count, del, get, scan, set } from './verbs/records.ts';
import { serve } from './verbs/serve.ts';
import { changeKey, compact, recover, reencrypt, unlock, verify } from './verbs/maintenance.ts';

const MAX_U32 = 0xffff_ffff;
const DEFAULT_MEMORY_KIB = 19_456;
const DEFAULT_PASSES = 2;
const ARGUMENTS: { readonly [name: string]: string } = {
  '<PATH>': 'directory or data file of the database',
  '[PATH]': 'directory of the database',
  '<KEY>': 'key as JSON',
  '[VALUE]': 'value as JSON',
  '<FROM>': 'name of the collection',
  '<TO>': 'its new name, which no collection may have',
  '<SOURCE>': 'directory or data file of the damaged database',
  '<TARGET>': 'directory of the new database, which must not exist there yet',
  '<FILE>': 'the backup; - is a standard stream',
  '<DATABASE>': 'name of the replicated database',
};

const AFTER_HELP = `
PATH is a database's directory, or a single data file as a browser exports it.

Keys and values are JSON: ${PROGRAM} set DIR '"name"' '{"born":1815}'. What JSON cannot say is an object with one property:
{"$bytes":"base64"}, {"$date":"1815-12-10T00:00:00.000Z"}, {"$bigint":"123"}, {"$number":"NaN"} and others. A property of your own
that begins with $ is written with $$.

Exit codes: 0 done, 1 wrong usage or any other failure, 2 damage was found.`;

/** A whole number from `least` to `most`. */
const whole =
  (least: number, most = Number.MAX_SAFE_INTEGER) =>
  (text: string): number => {
    const number = Number(text);
    if (!/^\d+$/.test(text) || number < least || number > most)
      throw new InvalidArgumentError(`It has to be a whole number from ${least} to ${most}.`);
    return number;
  };

const collection = new Option(
  '--collection <NAME>',
  'name of the collection; the default is the database\'s own, whose name is ""',
).default('', '""');
const raw = new Option(
  '--raw <FORM>',
  'keys and values of collections without a codec are strings of this form instead of {"$bytes":…}',
).choices([...RAW_FORMS]);
const durability = new Option(
  '--durability <WHEN>',
  'when a commit is done: when it survives a power cut, or the death of the process, or at once',
)
  .choices(['strict', 'relaxed', 'none'])
  .default('strict');
const progress = new Option('--progress', 'shows progress on standard error even if that is not a terminal');
const range = [
  new Option('--start <KEY>', 'first key, as JSON'),
  new Option('--end <KEY>', 'key before which the range ends, as JSON'),
  new Option(
    '--prefix <KEY>',
    'only keys that begin with this string, these bytes or the elements of this array, as JSON',
  ),
];

/** What commander gives for the options of a verb: those that the verb has. */
interface Given {
  readonly keyFile?: string;
  readonly passphraseFile?: string;
  readonly collection: string;
  readonly raw?: RawForm;
  readonly durability: Durability;
  readonly start?: string;
  readonly end?: string;
  readonly prefix?: string;
  readonly reverse?: boolean;
  readonly limit?: number;
  readonly keysOnly?: boolean;
  readonly batch: number;
  readonly ack?: boolean;
  readonly since?: number;
  readonly incremental?: boolean;
  readonly overwrite?: boolean;
  readonly force?: boolean;
  readonly progress?: boolean;
  readonly newKeyFile?: string;
  readonly newPassphraseFile?: string;
  readonly memoryKib: number;
  readonly passes: number;
  readonly count: number;
  readonly valueBytes: number;
}

function toEncryption({ keyFile, passphraseFile }: Given): Encryption | undefined {
  if (keyFile !== undefined && passphraseFile !== undefined)
    throw invalid('--key-file and --passphrase-file exclude each other');
  return keyFile !== undefined
    ? readKey(keyFile)
    : passphraseFile !== undefined
      ? readPassphrase(passphraseFile)
      : undefined;
}

function toNewKey({ newKeyFile, newPassphraseFile, memoryKib, passes }: Given): Encryption {
  if ((newKeyFile === undefined) === (newPassphraseFile === undefined))
    throw invalid('name the new key with --new-key-file, or with --new-passphrase-file');
  return newKeyFile === undefined
    ? readPassphrase(newPassphraseFile as string, { memoryKiB: memoryKib, passes })
    : readKey(newKeyFile);
}

const program = new Command(PROGRAM)
  .description('Reads and writes Mangrove databases.')
  .version(`${PROGRAM} ${packageJson.version}`, '-V, --version')
  .option('--key-file <FILE>', 'file with the key of an encrypted database: 32 bytes, or 64 hexadecimal digits')
  .option(
    '--passphrase-file <FILE>',
    'file with the passphrase of an encrypted database; a line end after it is not part of it',
  )
  .configureHelp({ showGlobalOptions: true })
  .configureOutput({
    writeOut: (text) => writeOutput(new TextEncoder().encode(text)),
    writeErr: (text) => note(text.trimEnd()),
  })
  .addHelpText('after', AFTER_HELP)
  .showHelpAfterError("\nFor more information, try '--help'.")
  .exitOverride();

type Run = (args: readonly string[], options: Given & StoreOptions) => Promise<void>;

/** Adds a verb: its name and arguments, and what runs it. An argument that is left out is undefined. */
function verb(
  usage: string,
  description: string,
  options: readonly Option[],
  run: Run,
  { alias, help }: { readonly alias?: string; readonly help?: string } = {},
): void {
  const [name = '', ...names] = usage.split(' ');
  const command = program.command(name).description(description);
  for (const each of names) command.argument(each, ARGUMENTS[each]);
  for (const each of options) command.addOption(each);
  if (alias !== undefined) command.alias(alias);
  if (help !== undefined) command.addHelpText('after', `\n${help}`);
  command.action(async (...given: unknown[]) => {
    const values = command.optsWithGlobals<Given>();
    await run(given.slice(0, names.length) as string[], { ...values, encryption: toEncryption(values) });
  });
}

verb('get <PATH> <KEY>', 'Prints the value of a key.', [collection, raw], ([path, key], options) =>
  get(path!, key!, options),
);
verb(
  'set <PATH> <KEY> [VALUE]',
  'Stores a record; without VALUE it reads standard input.',
  [collection, raw, durability],
  ([path, key, value], options) => set(path!, key!, value, options),
);
verb(
  'del <PATH> <KEY>',
  'Removes a record; prints whether there was one.',
  [collection, raw, durability],
  ([path, key], options) => del(path!, key!, options),
  { alias: 'delete' },
);
verb(
  'scan <PATH>',
  'Prints the records of a range, one {"key":…,"value":…} a line.',
  [
    collection,
    raw,
    ...range,
    new Option('--reverse', 'from the last key to the first'),
    new Option('--limit <COUNT>', 'maximum number of records to print').argParser(whole(0)),
    new Option('--keys-only', 'leaves out the values'),
  ],
  ([path], options) => scan(path!, options),
);
verb('count <PATH>', 'Prints the number of records in a range.', [collection, raw, ...range], ([path], options) =>
  count(path!, options),
);
verb(
  'stat <PATH>',
  'Prints figures of the database and its collections.',
  [],
  ([path], options) => stat(path!, options),
  { alias: 'stats' },
);
verb(
  'list <PATH>',
  'Prints the collections, one {"name":…,"count":…,"keyCodec":…,"valueCodec":…} a line.',
  [],
  ([path], options) => list(path!, options),
);
verb(
  'rename <PATH> <FROM> <TO>',
  'Gives a collection another name; prints whether there was one.',
  [durability],
  ([path, from, to], options) => rename(path!, from!, to!, options),
);
verb(
  'verify <PATH>',
  'Reads and checks the whole file; exit code 2 if it is damaged.',
  [],
  ([path], options) => verify(path!, options),
  {
    help: 'Exit codes: 0 nothing is damaged, 1 it could not be checked, 2 damage was found.',
  },
);
verb(
  'recover <SOURCE> <TARGET>',
  'Writes what can be read of a damaged database into a new one; exit code 2 if something was lost.',
  [],
  ([source, target], options) => recover(source!, target!, options),
  {
    help: `\
The source is only read. Keys in the report are in base64; a collection of null means the list of collections itself.

Exit codes: 0 the new database has exactly the newest state, 1 it could not be created, 2 something was lost, or may have been.`,
  },
);
verb(
  'dump <PATH>',
  'Prints everything in the form that load reads.',
  [
    new Option(
      '--collection <NAME>',
      'only this collection; the default is all of them, each line with a "collection" field',
    ),
    raw,
  ],
  ([path], options) => dump(path!, options),
  { alias: 'export' },
);
verb(
  'load <PATH>',
  'Stores the records of standard input, one {"key":…,"value":…} a line.',
  [
    collection,
    raw,
    durability,
    new Option('--batch <LINES>', 'number of lines in a transaction, which stores all or none of them')
      .argParser(whole(1))
      .default(1000),
    new Option(
      '--ack',
      'prints the key of every line, as JSON, once it survives a power cut, also with --durability relaxed; when the input pauses, the lines received so far are committed',
    ),
  ],
  ([path], options) => load(path!, options),
  {
    alias: 'import',
    help: `\
A line may have a "collection"; those without go to --collection. A line {"keyCodec":…,"valueCodec":…} creates a collection with these
codecs. Nothing of a batch with a wrong line is stored; the batches before it are.`,
  },
);
verb(
  'compact <PATH>',
  'Gives free space inside the data file back to the file system.',
  [progress],
  ([path], options) => compact(path!, options),
  {
    help: `\
It needs no extra space. At most 1 MiB of free space remains, unless the report's "end" is "noRoom": then the blocks at the end of the
file fit into no free space below. It may be killed at any time: nothing is lost, and space already given back stays given back.`,
  },
);
verb(
  'backup <PATH> <FILE>',
  'Writes everything to one file, which restore reads.',
  [
    new Option(
      '--since <VERSION>',
      'writes only the commits after this version, which an earlier backup reported; the database has to keep a feed that reaches back to it',
    ).argParser(whole(0)),
    progress,
  ],
  ([path, file], options) => backup(path!, file!, options),
  {
    help: 'The report is printed on standard output, or on standard error if the backup goes to the former.',
  },
);
verb(
  'restore <FILE> <PATH>',
  'Makes a new database from a file that backup wrote, or with --at from an archive.',
  [
    new Option(
      '--incremental',
      'adds the commits of a backup made with --since to a database that is at that version: all of them or none',
    ).conflicts('overwrite'),
    new Option('--overwrite', 'replaces an existing database, in one step, once all of the new one is verified'),
    new Option(
      '--force',
      "with --overwrite: replaces files called data and log even if they do not begin like a database's",
    ),
    progress,
  ],
  ([file, path], options) => restore(file!, path!, options),
  {
    help: `\
The database is there once all of it was verified. If the command is killed, what is left does not open as a database and can be removed.

With --at or --at-position it makes the database of an earlier time from its archive in a bucket: ${PROGRAM} restore --at --help`,
  },
);
verb(
  'archive <DATABASE>',
  'Copies the log of a replicated database into its archive in a bucket, from which restore --at makes the database of an earlier time.',
  [],
  () => Promise.resolve(),
);
verb(
  'change-key <PATH>',
  'Gives an encrypted database another key; its data are not rewritten.',
  [
    new Option('--new-key-file <FILE>', 'file with the new key: 32 bytes, or 64 hexadecimal digits'),
    new Option('--new-passphrase-file <FILE>', 'file with the new passphrase; a line end after it is not part of it'),
    new Option('--memory-kib <KIB>', 'memory that deriving the key from the new passphrase takes')
      .argParser(whole(8, 1 << 20))
      .default(DEFAULT_MEMORY_KIB),
    new Option('--passes <N>', 'passes over that memory').argParser(whole(1, 1024)).default(DEFAULT_PASSES),
  ],
  ([path], options) => changeKey(path!, toNewKey(options), options),
);
verb(
  'reencrypt <PATH>',
  'Encrypts everything in an encrypted database anew, under another data key.',
  [progress],
  ([path], options) => reencrypt(path!, options),
  {
    help: `\
The key that the database opens with stays as it is; change-key changes it. Older copies and backups hold the old data key, with which
nothing of the new files can be read. It needs room for a few mebibytes, and may be killed at any time: nothing is lost, and the next
call continues.`,
  },
);
verb(
  'serve <PATH>',
  'Has the database open until a signal ends it, so that processes which open it are led by this one.',
  [],
  ([path], options) => serve(path!, options),
  {
    help: `\
Creates the database if it is missing, and prints {"path":…,"pid":…} once it is open. If another process leads already, it takes over
when that one ends.`,
  },
);
verb(
  'unlock [PATH]',
  'Takes over the lock of a process in another machine that is gone for sure, and gives it back.',
  [],
  ([path], options) => {
    if (path === undefined) throw invalid(`usage: ${PROGRAM} unlock <database>`);
    return unlock(path, options);
  },
);
verb(
  'bench <PATH>',
  'Measures a new database, which it removes afterwards.',
  [
    new Option('--count <COUNT>', 'records to write and read').argParser(whole(1, MAX_U32)).default(100_000),
    new Option('--value-bytes <BYTES>', 'length of the values').argParser(whole(4, 1 << 20)).default(100),
    durability,
  ],
  ([path], options) => bench(path!, options),
);

/** The verb, if it is one that needs the network and reads its arguments itself. */
function archiveVerb([name, ...rest]: readonly string[]): 'archive' | 'restore' | undefined {
  if (name === 'archive') return name;
  const end = rest.indexOf('--');
  const isAt = rest.slice(0, end < 0 ? undefined : end).some((argument) => /^--at(?:-position)?(?:=|$)/.test(argument));
  return name === 'restore' && isAt ? name : undefined;
}

async function run(args: readonly string[]): Promise<void> {
  const apart = archiveVerb(args);
  if (apart === undefined) await program.parseAsync(args, { from: 'user' });
  else await (await import('./archive/run.ts')).run(apart, args.slice(1));
}

/** Runs a command line; returns the exit code. */
async function main(args: readonly string[]): Promise<number> {
  try {
    await run(args);
    return 0;
  } catch (error) {
    // It has told why already.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_FAILURE;
    if (!(error instanceof BrokenPipe)) note(lineOf(error));
    return exitCodeOf(error);
  }
}

// Nothing is pending but what was not needed; all output is written.
process.exit(await main(process.argv.slice(2)));
