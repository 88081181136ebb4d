// Checks that the schedules and the stories find mistakes: makes each mutation in a copy, and
// something must fail. Mutations in `src/tabs` are mistakes of the protocol, those in `store.ts`
// violate what it expects of the engine. Names given as arguments select mutations; `--check` only looks whether
// each is still at one place.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { bundleWith, replaceOnce } from '../support/mutations.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const SOURCES = fileURLToPath(new URL('../../src/tabs/', import.meta.url));
const STORIES = readdirSync(HERE).filter((name) => name.endsWith('.test.ts'));
const SCHEDULES = process.env.MANGROVE_TABS_SCHEDULES ?? '5000';

/** Name, file, then pairs of original and replacement. */
const MUTATIONS = [
  ['leader executes a request again', 'leader.ts', 'if (served.session !== undefined && request.seq <= served.seq) {', 'if (false) {'],
  ['leader does not keep its reply', 'leader.ts', 'if (served !== this.#own) served.reply = reply;', ''],
  ['leader replies before all commits are stored', 'leader.ts', 'settled = this.#engine.settled();', 'settled = undefined;'],
  ['leader keeps the files of a crashed engine', 'leader.ts', 'this.#isOver = true;\n    this.#engine.dispose();', 'this.#isOver = true;'],
  ['leader reports a crash before it releases the files', 'leader.ts', /this\.#engine\.dispose\(\);\s+(if \(served !== undefined\)\s+this\.#post\(served, [^;]*;)/, '$1 this.#engine.dispose();'],
  ['leader does not report a crash', 'leader.ts', 'if (served !== undefined) this.#post(served, { type: \'crashed\'', 'if (false) this.#post(served!, { type: \'crashed\''],
  ['leader sends no heartbeat', 'leader.ts', '      this.announce();\n      this.#beat();', ''],
  ['leader keeps a session whose state differs from the client', 'leader.ts', '(hello === undefined || isSame(hello.state, served.state))', 'true'],
  ['leader opens a session for each hello', 'leader.ts', 'isSame(hello.state, served.state)', 'false'],
  ['leader never forgets a client', 'leader.ts', 'if (!this.#isOver) this.#forget(client);', ''],
  ['leader forgets a client that came back', 'leader.ts', 'if (this.#env.now() > due + LATE_MS) return forgetLater(FORGET_MS);', '', 'if (ms > LAST_LOOK_MS) return forgetLater(LAST_LOOK_MS);', ''],
  ['restarted client numbers its requests from the beginning', 'client.ts', 'if (options.isAgain) this.#seq = Math.floor(env.time());', ''],
  ['client resends under another number', 'client.ts', 'seq: flight.seq, message', 'seq: (flight as { seq: number }).seq = ++this.#seq, message'],
  ['client never resends', 'client.ts', 'this.#later(flight.resends++, ', 'if (false) this.#later(flight.resends++, '],
  ['client does not send its state', 'client.ts', '{ state: this.#state, readOnly }', '{ state: null, readOnly }'],
  ['client ignores the state in replies', 'client.ts', 'message.seq === this.#flight?.seq) this.#state = message.state;', 'message.seq === this.#flight?.seq);'],
  ['client accepts any reply', 'client.ts', 'if (flight === undefined || flight.seq !== seq) return;\n    this.#cancelResend();\n    this.#flight = undefined;\n    this.#stateSeq', 'if (flight === undefined) return;\n    this.#cancelResend();\n    this.#flight = undefined;\n    this.#stateSeq'],
  ['client never introduces itself to a leader that does not know it', 'client.ts', 'if (flight.resends > HELLO_AFTER) this.#sayHello();', ''],
  ['client refuses messages out of order', 'client.ts', /(if \(flight !== undefined && flight\.count > 0\) this\.#refused\(notAnswered.*)\n +(const waiting = this\.#waiting\.splice\(0\);)/, '$2\n$1'],
  ['client always says that nothing was done', 'client.ts', 'return wasSent\n', 'return false\n'],
  ['client waits for ever', 'client.ts', 'if (waitedMs < this.#options.deadlineMs) return;', 'return;'],
  ['client repeats a request that crashes the engine for ever', 'client.ts', 'const MAX_CRASHES = 2;', 'const MAX_CRASHES = Infinity;'],
  ['client never looks for a leader', 'client.ts', 'this.#announce({ type: \'who\', protocol: PROTOCOL, client: this.#options.id });', ''],
  ['client returns to an older term', 'client.ts', 'this.#env.now() - this.#ledAt <= MISSED_HEARTBEATS * HEARTBEAT_MS', '!this.isSilent'],
  ['client accepts an older state', 'client.ts', 'message.seq < this.#stateSeq || ', ''],
  ['client ignores the reply to its hello in a new term', 'client.ts', 'if (message.type === \'ready\' && message.term > this.term) return this.hear(message.term, this.#version);', ''],
  ['client without a reply does not have kept pages dropped', 'client.ts', '      this.#env.dropKept();\n      run();', '      run();'],
  ['client whose leader resigned does not have kept pages dropped soon', 'client.ts', 'this.#later(0, () => {});', 'this.#cancelResend();'],
  ['client that finds no leader does not have kept pages dropped', 'client.ts', 'this.#env.dropKept();\n    // There may', '// There may'],
  ['client does not check whether it missed a wake-up', 'client.ts', 'if (version > this.#version) this.#page.wake();', ''],
  ['client counts the time asleep as waiting', 'client.ts', 'if (isForgiven) this.#forgivenAt = now;', ''],
  ['peer does not hold the lock of its name', 'peer.ts', 'this.#env.lock(names.client(database, id), isBack', 'this.#env.lock(names.client(database, `${id}!`), isBack'],
  ['peer waits for the lock of its name instead of stealing it', 'peer.ts', 'this.#env.lock(names.client(database, id), isBack', 'this.#env.lock(names.client(database, id), false'],
  ['leader that lost the lock of a client does not wait for it again', 'leader.ts', 'if (!this.#isOver) this.#watch(client);', ''],
  ['peer says hello before it holds the lock of its name', 'peer.ts', '        if (this.#role !== \'joining\') return release();\n        this.#role = \'follower\';\n        this.#page.joined();\n        this.#who();\n        this.#queue(false);\n      },\n    });', '      },\n    });\n    this.#role = \'follower\';\n    this.#who();\n    this.#queue(false);'],
  ['peer steals though the leader was heard', 'peer.ts', 'hasHeard ? isSilent : ', 'hasHeard ? true : '],
  ['peer steals though it is not visible', 'peer.ts', ' && visible && isQuiet', ' && isQuiet'],
  ['peer steals after it slept', 'peer.ts', 'isQuiet && !isLate', 'isQuiet'],
  ['peer steals though it hears nobody', 'peer.ts', ' || !hearsItself', ''],
  ['peer steals from a tab that has just begun to open', 'peer.ts', ' && now - this.#openingAt > MISSED_HEARTBEATS * HEARTBEAT_MS', ''],
  ['peer does not steal from a tab that never finishes opening', 'peer.ts', 'this.#client.forgetLeader();\n        this.#openingAt = this.#env.now();', 'this.#client.forgetLeader();'],
  ['peer does not steal from an heir that does not run', 'peer.ts', 'this.#client.resigned(message.term);\n        this.#openingAt = this.#env.now();', 'this.#client.resigned(message.term);'],
  ['peer follows before it holds the lock of its name', 'peer.ts', 'if (this.#role === \'joining\') return;', ''],
  ['peer steals again and again', 'peer.ts', ' || now < this.#mayStealAt', ''],
  ['peer never steals', 'peer.ts', 'this.#queue(true);', ''],
  ['peer releases the lock before it closes the files', 'peer.ts', 'const failure = this.#closeLeader(forgetsOwn);\n', 'this.#letGo();\n    const failure = this.#closeLeader(forgetsOwn);\n'],
  ['peer releases the lock while it opens the files', 'peer.ts', '    this.#cancelOpening();\n    this.#letGo();\n', '    this.#letGo();\n    this.#cancelOpening();\n', "    this.#cancelOpening();\n    this.#traceLost('resigned');\n    const leader", "    this.#traceLost('resigned');\n    const leader"],
  ['peer that lost the lock keeps the files', 'peer.ts', 'this.#cancelOpening();\n    this.#closeLeader(false);', ''],
  ['peer hides before it is answered', 'peer.ts', '!(this.#client.isIdle || this.#role === \'away\')', 'false'],
  ['peer that hides keeps what it acquired in the meantime', 'peer.ts', 'const failure = this.#resign(next === \'gone\');', 'const failure = next === \'gone\' ? this.#resign(true) : undefined;'],
  ['peer that is shown forgets that it leaves', 'peer.ts', 'if (this.#whenIdle === \'away\') this.#endWhenIdle(undefined);', 'this.#endWhenIdle(undefined);'],
  ['peer that left waits for the lock', 'peer.ts', 'if (this.role === \'opening\' || this.role === \'leader\') this.#requeue(RETRY_MS);', 'this.#requeue(RETRY_MS);'],
  ['peer that was served before gives up for lack of room', 'peer.ts', 'this.#client.hasOpened && error.retryable', 'this.#client.hasOpened && error.code === \'KV_LOCKED\''],
  ['peer that failed to open relies on an earlier opening', 'peer.ts', 'this.#role = \'follower\';\n    this.#openingAt = this.#env.now();', 'this.#role = \'follower\';'],
  ['peer that is not visible keeps the lock', 'peer.ts', 'if (heir === undefined) return;', 'return;'],
  ['peer does not let the heir go first', 'peer.ts', 'this.#heir = { id: message.heir, until: this.#env.now() + HEIR_FIRST_MS };', ';'],
  ['peer does not open again after a crash', 'peer.ts', '    this.#page.backgroundError(error);', '    return this.#page.backgroundError(error);'],
  ['peer leads in a past term', 'peer.ts', 'Math.max(this.#client.term + 1, Math.floor(this.#env.time()))', 'Math.floor(this.#env.time() / 3_600_000)'],
  ['engine stores no outcome', 'store.ts', 'if (client !== \'\') this.rows.set(client, { seq, outcomes });', ''],
  ['engine stores only the last outcome of a message', 'store.ts', 'before?.seq === seq ? [...before.outcomes, outcome] : [outcome]', 'before?.seq === seq ? [outcome] : [outcome]'],
  ['engine cuts a message before what it committed of it', 'store.ts', ' && writes >= known.length && this.#fate.isFull()', ' && this.#fate.isFull()'],
  ['client asks again for all of a message that was cut', 'client.ts', 'flight.message.slice(cut.at)', 'flight.message.slice()'],
  ['client asks for what is left under the same number', 'client.ts', '{ ...flight, seq: ++this.#seq, message,', '{ ...flight, message,'],
  ['engine keeps the outcome of a lost commit', 'store.ts', '      if (before === undefined) this.rows.delete(client);\n      else this.rows.set(client, before);\n', ''],
  ['engine continues snapshots of any version', 'store.ts', ' && this.#mayInherit && snapshot.version === this.#openedAt && snapshot.last === this.#openedLast', '', 'return snapshot.isLost ? LOST : snapshot.version;', 'return snapshot.isLost ? LOST : Math.max(snapshot.version, this.#openedAt);'],
];

function mutate(source, [name, , ...changes]) {
  for (let i = 0; i < changes.length; i += 2) source = replaceOnce(source, changes[i], changes[i + 1], name);
  return source;
}

function pathOf([, file]) {
  return join(file === 'store.ts' ? HERE : SOURCES, file);
}

const directory = mkdtempSync(join(tmpdir(), 'mangrove-tabs-'));

/** Bundles the files with the mutation; returns the paths of the bundles. */
async function bundle(files, mutation) {
  const changed = mutation && { path: pathOf(mutation), contents: mutate(readFileSync(pathOf(mutation), 'utf8'), mutation) };
  await bundleWith({ files: files.map((file) => join(HERE, file)), directory, ...changed });
  return files.map((file) => join(directory, file.replace(/\.ts$/, '.mjs')));
}

function run(args) {
  const env = { ...process.env, MANGROVE_TABS_SCHEDULES: SCHEDULES, MANGROVE_TABS_FAILURES: '1', MANGROVE_TABS_TRACE: 'no' };
  const { status, stdout } = spawnSync(process.execPath, args, { env, encoding: 'utf8', timeout: 120_000 });
  return { passed: status === 0, text: status === null ? 'hangs' : stdout };
}

async function find(mutation) {
  const schedules = run(await bundle(['run.ts'], mutation));
  if (!schedules.passed) return /^seed .*$/m.exec(schedules.text)?.[0] ?? schedules.text;
  const stories = run(['--test', '--test-reporter', 'tap', ...await bundle(STORIES, mutation)]);
  return stories.passed ? undefined : (/^ *not ok .*$/m.exec(stories.text)?.[0].trim() ?? stories.text);
}

const words = process.argv.slice(2).filter((word) => word !== '--check');
const chosen = process.argv.includes('--check') ? [] : MUTATIONS.filter(([name]) => words.length === 0 || words.some((part) => name.includes(part)));
for (const mutation of MUTATIONS) mutate(readFileSync(pathOf(mutation), 'utf8'), mutation);
if (process.argv.includes('--check')) process.exit();
try {
  let missed = 0;
  if (await find(undefined) !== undefined) throw new Error('something fails without a mutation');
  for (const mutation of chosen) {
    const found = await find(mutation);
    if (found === undefined) missed++;
    console.log(`${found === undefined ? 'MISSED' : 'found'}: ${mutation[0]}${found === undefined ? '' : ` - ${found}`}`);
  }
  console.log(`${chosen.length - missed} of ${chosen.length} mistakes were found`);
  process.exitCode = missed === 0 ? 0 : 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
