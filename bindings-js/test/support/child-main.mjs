// A process that holds a database, tries to, leaves it open, or writes into one or restores it until it is killed.
import { existsSync, readFileSync } from 'node:fs';
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

/** Goes on once there is a file that says so. */
async function goOn() {
  const db = await open(path);
  await db.set('held', 1);
  say('open');
  while (!existsSync(`${path}-go`)) await new Promise((resolve) => setTimeout(resolve, 10));
  for (const write of [() => db.set('held', 2), () => db.set('held', 3, { durability: 'relaxed' }), () => db.close()]) {
    say(await write().then(() => 'done', (error) => error.code));
  }
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

await { try: tryToOpen, hold, goOn, leave, write, restore: restoreAgain }[mode]();
