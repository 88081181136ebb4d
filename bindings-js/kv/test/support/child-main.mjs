// A process that holds a database, tries to open one, leaves one open, or writes to or restores one
// until it is killed.
import { existsSync, readFileSync } from 'node:fs';
import process from 'node:process';
import { open, openSync, restore } from 'mangrove-kv';

const [mode, path, backup] = process.argv.slice(2);

function say(line) {
  process.stdout.write(`${line}\n`);
}

async function tryToOpen() {
  try {
    const db = await open(path, { lockTimeout: 0, share: false });
    for (let index = 0; index < 30; index++) await db.set(['tried', index], index);
    await db.close();
    say('open');
  } catch (error) {
    say(error.code);
    say(error.message);
  }
}

/** Takes the lock over; `how` is the name of the call, or "refusal" for `open` without the option. */
async function takeOver(how) {
  try {
    const options = { lockTimeout: 0, takeOver: how !== 'refusal', share: false };
    if (how === 'openSync') openSync(path, options).close();
    else await (await open(path, options)).close();
    say('open');
    say('');
  } catch (error) {
    say(error.code);
    say(error.retryable ? 'retryable' : 'not retryable');
  }
}

async function hold() {
  const db = await open(path, { share: false });
  await db.set('held', 1);
  say('open');
  setInterval(() => {}, 1000);
}

/** Continues once the file `<path>-go` exists. */
async function goOn() {
  const db = await open(path, { share: false });
  await db.set('held', 1);
  say('open');
  while (!existsSync(`${path}-go`)) await new Promise((resolve) => setTimeout(resolve, 10));
  for (const write of [() => db.set('held', 2), () => db.set('held', 3, { durability: 'relaxed' }), () => db.close()]) {
    say(
      await write().then(
        () => 'done',
        (error) => error.code,
      ),
    );
  }
}

/** Leaves the database open with nothing left to do. */
async function leave() {
  const db = await open(path);
  await db.set('left', 1, { expireIn: 1 });
  say('open');
}

/**
 * Prints each number once it is stored. Its commit stores it twice, with a value that makes the
 * file grow.
 */
async function write(options) {
  const db = await open(path, options);
  if (options !== undefined) void reencryptAgain(db);
  for (let next = (await db.size) / 2; ; next++) {
    const text = 'x'.repeat((next * 7919) % 20_000);
    await db.batch([
      { type: 'set', key: ['a', next], value: { next, text } },
      { type: 'set', key: ['b', next], value: next },
    ]);
    say(next);
  }
}

async function reencryptAgain(db) {
  for (;;) await db.reencrypt();
}

/** As `write`, while everything is encrypted anew, again and again. */
const writeEncrypted = () => write({ encryption: { key: new Uint8Array(32).fill(7) } });

/** Restores again and again, and prints the progress. */
async function restoreAgain() {
  const blob = new Blob([readFileSync(backup)]);
  for (;;) await restore(path, blob, { overwrite: true, onProgress: say });
}

await {
  try: tryToOpen,
  takeOver: () => takeOver(backup),
  hold,
  goOn,
  leave,
  write: () => write(),
  writeEncrypted,
  restore: restoreAgain,
}[mode]();
