// A process that holds a database, tries to, leaves it open, or writes into one or restores it until it is killed.
import { readFileSync } from 'node:fs';
import process from 'node:process';
import { open, restore } from 'mangrove-kv';

const [mode, path, backup] = process.argv.slice(2);

function say(line) {
  process.stdout.write(`${line}\n`);
}

async function tryToOpen() {
  try {
    const db = await open(path, { lockTimeout: 0 });
    for (let index = 0; index < 30; index++) await db.set(['tried', index], index);
    await db.close();
    say('open');
  } catch (error) {
    say(error.code);
    say(error.message);
  }
}

async function hold() {
  const db = await open(path);
  await db.set('held', 1);
  say('open');
  setInterval(() => {}, 1000);
}

/** Leaves it open with nothing more to do. */
async function leave() {
  const db = await open(path);
  await db.set('left', 1, { expireIn: 1 });
  say('open');
}

/** Says a number once it is stored; each commit holds it twice, and a value that makes the file grow. */
async function write() {
  const db = await open(path);
  for (let next = await db.size / 2; ; next++) {
    const text = 'x'.repeat((next * 7919) % 20_000);
    await db.batch([
      { type: 'set', key: ['a', next], value: { next, text } },
      { type: 'set', key: ['b', next], value: next },
    ]);
    say(next);
  }
}

/** Says how far it is, and what it does next. */
async function restoreAgain() {
  const blob = new Blob([readFileSync(backup)]);
  for (;;) await restore(path, blob, { overwrite: true, onProgress: say });
}

await { try: tryToOpen, hold, leave, write, restore: restoreAgain }[mode]();
