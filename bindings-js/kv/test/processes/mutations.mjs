// Checks that the schedules find mistakes: makes each mutation in a copy, and something must fail. The
// tests beside this file are run for what no schedule drives. Names given as arguments select mutations;
// `--check` only looks whether each is still at one place.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { bundleWith, replaceOnce } from '../support/mutations.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const SOURCES = fileURLToPath(new URL('../../src/', import.meta.url));
const STORIES = ['check-message', 'client-id', 'hub'];
/** What no schedule drives. */
const TOLD = ['processes/check-message.ts', 'processes/client-id.ts'];
const SCHEDULES = process.env.MANGROVE_PROCESSES_SCHEDULES ?? '5000';

/** Name, file, then pairs of original and replacement. */
const MUTATIONS = [
  ['hub drops requests and replies to a member that reads slowly', 'processes/hub.ts', 'port.backlog < MAX_LOSSY_BACKLOG_BYTES || !LOSSY.includes(message.type)', 'port.backlog < MAX_LOSSY_BACKLOG_BYTES'],
  ['hub keeps everything for a member that does not read', 'processes/hub.ts', 'port.backlog < MAX_LOSSY_BACKLOG_BYTES || !LOSSY.includes(message.type)', 'true'],
  ['hub looks only once for processes that have ended', 'processes/hub.ts', 'if (isLeft && !this.#isClosed) this.#lookLater(LOOK_MS);', ''],
  ['hub does not look for processes that have ended', 'processes/hub.ts', '      this.#lookLater(0);', ''],
  ['hub takes all clients for living ones', 'processes/hub.ts', 'if (this.#machine.mayLive(client)) isLeft = true;', 'if (true) isLeft = true;'],
  ['hub takes clients that are away for dead ones', 'processes/hub.ts', 'if (this.#machine.mayLive(client)) isLeft = true;\n      else', 'if (isLeft) isLeft = true;\n      else'],
  ['hub does not tell that a member has ended', 'processes/hub.ts', '      this.#members.delete(client);\n      this.#end(client);\n    };', '      this.#members.delete(client);\n    };'],
  ['hub keeps a member that has ended', 'processes/hub.ts', '      this.#members.delete(client);\n      this.#end(client);\n    };', '      this.#end(client);\n    };'],
  ['hub takes the end of an earlier connection for that of the client', 'processes/hub.ts', 'if (this.#members.get(client) !== member) return;', ''],
  ['hub takes members of another protocol', 'processes/hub.ts', /if \(protocol !== PROTOCOL\) return `process[^;]*;/, ''],
  ['hub that is closed takes members', 'processes/hub.ts', /if \(this\.#isClosed\) return `process[^;]*;/, ''],
  ['hub that is closed takes handles of its thread', 'processes/hub.ts', 'if (this.#isClosed || protocol !== PROTOCOL) return undefined;', ''],
  ['hub lets members speak for others', 'processes/hub.ts', ' || (\'client\' in message && message.client !== client)', ''],
  ['hub does not check messages', 'processes/hub.ts', 'checkMessage(\'toLeader\', value)', '(value as Message | undefined)'],
  ['hub does not end the connection of one that sends nonsense', 'processes/hub.ts', '      void port.close();\n      this.#members.delete(client);', '      this.#members.delete(client);'],
  ['hub keeps one that sends nonsense as a member', 'processes/hub.ts', '      void port.close();\n      this.#members.delete(client);', '      void port.close();'],
  ['hub welcomes nobody', 'processes/hub.ts', 'port.send({ type: \'welcome\', ...this.leader } satisfies Welcome);', ''],
  ['hub does not deliver announcements of members', 'processes/hub.ts', 'message.type === \'who\' || message.type === \'hello\'', 'message.type === \'who\''],
  ['hub does not send that its leader leads', 'processes/hub.ts', 'if (lead !== undefined && !this.#isClosed)', 'if (false)'],
  ['hub does not send other announcements', 'processes/hub.ts', 'if (message.type !== \'lead\') return this.#send([...this.#members.values()], message);', 'if (message.type !== \'lead\') return;'],
  ['hub sends to all what is for one', 'processes/hub.ts', 'if (member !== undefined) this.#send([member], message);', 'if (member !== undefined) this.#send([...this.#members.values()], message);'],
  ['hub listens though it is closed', 'processes/hub.ts', '    if (this.#isClosed) return;\n    this.#beginning', '    this.#beginning'],
  ['hub lets the next leader lead while it begins to listen', 'processes/hub.ts', 'this.#beginning?.then(unlock) ?? unlock()', 'unlock()'],
  ['hub that was closed when it began to listen goes on', 'processes/hub.ts', 'if (this.#isClosed) stop();\n    else this', 'this'],
  ['hub that is closed listens', 'processes/hub.ts', 'this.#stopListening?.();', ''],
  ['hub that is closed remains that of its thread', 'processes/hub.ts', 'this.#endLocal();', ''],
  ['hub that is closed keeps its connections', 'processes/hub.ts', '...members.map(({ port }) => port.close())', ''],
  ['hub does not tell who waits that a client has ended', 'processes/hub.ts', 'gone?.();', ''],
  ['hub does not deliver to the leader', 'processes/hub.ts', 'this.#channels.set(client, receive);', ''],
  ['handle does not say what it hears as the leader', 'processes/environment.ts', '(message) => this.#whenIdle(() => this.#toAll(message))', 'hub.onannouncement'],
  ['leader uses a busy engine for requests', 'processes/environment.ts', '(message) => this.#whenIdle(() => receive(message))', 'receive'],
  ['leader uses a busy engine for timers', 'processes/environment.ts', '() => this.#whenIdle(run)', 'run'],
  ['handle does not look for the next leader', 'processes/environment.ts', 'heir: undefined });\n          this.#seek();', 'heir: undefined });'],
  ['handle that leads has not joined', 'processes/environment.ts', '    this.#join();\n    this.#grant();', '    this.#grant();'],
  ['handle that has the lock is not told', 'processes/environment.ts', '    this.#join();\n    this.#grant();', '    this.#join();'],
  ['handle that is welcome has not joined', 'processes/environment.ts', '        this.onleader(this.#leader);\n        this.#join();', '        this.onleader(this.#leader);'],
  ['handle that cannot open the files takes the lock', 'processes/environment.ts', 'if (this.#wish === undefined && this.#joined === undefined) return false;', ''],
  ['handle that resigned keeps the lock', 'processes/environment.ts', 'hub.close(() => unlock?.())', 'hub.close(() => {})'],
  ['handle releases the lock while it listens', 'processes/environment.ts', 'const closing = hub.close(() => unlock?.());', 'unlock?.();\n    const closing = hub.close(() => {});'],
  ['handle that has left takes a welcome', 'processes/environment.ts', 'this.#isOver || welcome?.type !== \'welcome\'', 'welcome?.type !== \'welcome\''],
  ['handle that leaves keeps the lock', 'processes/environment.ts', 'Promise.all([this.#closing, port?.close(), this.#resign()])', 'Promise.all([this.#closing, port?.close()])'],
  ['handle that leaves goes on looking', 'processes/environment.ts', '    this.#isOver = true;\n    this.#wish', '    this.#wish'],
  ['handle looks twice at once', 'processes/environment.ts', 'if (this.#isSeeking || this.#isOver', 'if (this.#isOver'],
  ['handle waits for ever for a welcome', 'processes/environment.ts', 'port.onclose = () => resolve(false);', ''],
  ['handle does not connect within its thread', 'processes/environment.ts', 'this.#machine.local()?.join(introduction)', '(undefined as Port | undefined)'],
  ['handle does not connect elsewhere', 'processes/environment.ts', 'if (address?.socket === undefined || ', 'if (true || address?.socket === undefined || '],
  ['handle delivers what is for its client to all', 'processes/environment.ts', 'message.type === \'lead\' || message.type === \'opening\'', 'message.type === \'opening\''],
  ['messages have any numbers', 'processes/check-message.ts', 'Number.isSafeInteger(value) && (value as number) >= 0', 'typeof value === \'number\''],
  ['messages have negative numbers', 'processes/check-message.ts', ' && (value as number) >= 0', ''],
  ['messages have anything that may be null', 'processes/check-message.ts', 'value === null || check(value)', 'true'],
  ['messages have anything that may be missing', 'processes/check-message.ts', 'value === undefined || check(value)', 'true'],
  ['messages have anything as bytes', 'processes/check-message.ts', 'value instanceof Uint8Array', 'true'],
  ['messages are of any protocol', 'processes/check-message.ts', 'value === PROTOCOL', 'true'],
  ['messages lack a part', 'processes/check-message.ts', 'Object.entries(shape).every(', 'Object.entries(shape).some('],
  ['messages go in both directions', 'processes/check-message.ts', '!Object.hasOwn(SHAPES[direction], type)', '!(type in { ...SHAPES.toLeader, ...SHAPES.toMember })', 'SHAPES[direction][type as', '({ ...SHAPES.toLeader, ...SHAPES.toMember })[type as'],
  ['messages are of types that only look like one', 'processes/check-message.ts', '!Object.hasOwn(SHAPES[direction], type)', '!(type in SHAPES[direction])', '?.(value) === true', '?.(value)'],
  ['clients of other machines have ended', 'processes/client-id.ts', 'of !== realmName() || ', ''],
  ['clients live on as another process', 'processes/client-id.ts', 'isRunning({ pid: Number(pid), started })', 'isRunning({ pid: Number(pid), started: \'\' })'],
  ['clients of a process have one name', 'processes/client-id.ts', 'unique.join(\'\')', '\'\''],
  ['clients live for ever', 'processes/client-id.ts', 'isRunning({ pid: Number(pid), started })', 'true'],
  ['first opener uses a busy engine for others', 'processes/leading-transport.ts', 'if (this.isOccupied || this.#due.length > 0) this.#due.push(run);\n    else run();', 'run();'],
  ['first opener forgets what others asked meanwhile', 'processes/leading-transport.ts', 'this.#due.push(run)', 'undefined'],
  ['first opener goes on with the first of the others only', 'processes/leading-transport.ts', 'while (this.#due.length > 0 && !this.isOccupied) this.#due.shift()?.();', 'if (!this.isOccupied) this.#due.shift()?.();'],
  ['first opener goes on with others though it is busy again', 'processes/leading-transport.ts', 'this.#due.length > 0 && !this.isOccupied', 'this.#due.length > 0'],
  ['first opener does not go on with the others', 'processes/leading-transport.ts', 'idle: () => this.#runDue()', 'idle: () => {}'],
  ['first opener does not wake others', 'processes/leading-transport.ts', 'wake: (sessions) => this.#leader.wakeClients(sessions)', 'wake: () => {}'],
  ['first opener does not say that it leads', 'processes/leading-transport.ts', 'if (message.type === \'who\') this.#leader.announce();\n      else if', 'if'],
  ['first opener serves nobody', 'processes/leading-transport.ts', 'this.#leader.hello(message.client, message.visible)', ';'],
  ['first opener keeps the lock', 'processes/leading-transport.ts', 'await this.#environment.end();', ''],
  ['first opener releases the lock before it closes the files', 'processes/leading-transport.ts', 'this.#leader.close(true);', 'void this.#environment.end();\n      this.#leader.close(true);'],
  ['first opener does not tell that its engine stopped', 'processes/leading-transport.ts', 'this.events?.fail(error);', ''],
  ['first opener gets its reply before the flush', 'engine/in-thread-transport.ts', '} else if (this.host.owesFlush) {', '} else if (false) {'],
  ['first opener sends more while its reply waits', 'engine/in-thread-transport.ts', 'return this.isOccupied || this.#held !== undefined;', 'return this.isOccupied;'],
  ['first opener gets its reply twice', 'engine/in-thread-transport.ts', 'this.#left = held.left;\n    this.#reply(held.reply, held.requests);\n    this.#continue();', 'this.#left = held.left;\n    this.#reply(held.reply, held.requests);\n    this.#reply(held.reply, held.requests);\n    this.#continue();'],
  ['first opener loses what is left of its message', 'engine/in-thread-transport.ts', 'this.#left = held.left;\n    this.#reply(held.reply, held.requests);\n    this.#continue();', 'this.#reply(held.reply, held.requests);\n    this.#continue();'],
  ['first opener does not go on after its reply', 'engine/in-thread-transport.ts', 'this.#continue();\n    if (!this.isOccupied) this.#idle();\n  }\n\n  #refuseHeld', 'this.#continue();\n  }\n\n  #refuseHeld'],
  ['group has its replies before the flush ends', 'engine/group-commit.ts', 'this.#waiting.push({ isOwn, resolve, reject });', 'this.#waiting.push({ isOwn, resolve, reject });\n      resolve();'],
  ['group counts who joined during the flush', 'engine/group-commit.ts', 'const covered = this.#covered;', 'const covered = [...this.#covered, ...this.#waiting.splice(0)];'],
  ['group waits for ever for who does not return', 'engine/group-commit.ts', 'this.#until = now + Math', 'this.#until = Infinity + Math'],
  ['group begins no flush for the first', 'engine/group-commit.ts', 'if (!this.#isFlushing) this.#lookLater();', ''],
  ['group forgets who joined during the flush', 'engine/in-thread-transport.ts', 'if (!this.isOccupied) this.#group?.look();', ''],
  ['leader wakes the first opener while it serves another', 'processes/served-engine.ts', /(this\.#return\(\);)\s+\/\/ Last.*\s+(if \(this\.wakes.*;)/, '$2 $1'],
  ['leader replies before the flush', 'processes/served-engine.ts', 'this.#owesFlush ? this.#transport.flushed() : undefined', 'undefined'],
  ['leader does not wake the first opener', 'processes/served-engine.ts', 'if (this.wakes.includes(0)) this.#transport.events?.wake();', ''],
  ['leader executes a request again', 'tabs/leader.ts', 'if (served.session !== undefined && request.seq <= served.seq) {', 'if (false) {'],
  ['leader forgets what arrives while it stores', 'tabs/leader.ts', 'served.next = request;', ''],
  ['leader keeps what arrived while it stored', 'tabs/leader.ts', 'this.#knows(served) && this.#serve(served, next)', '{}'],
  ['client sends again over a connection that loses nothing', 'tabs/client.ts', 'if (this.#env.isOrdered) return;', ''],
  ['leader never forgets a client', 'tabs/leader.ts', 'if (!this.#isOver) this.#forget(client);', ''],
  ['leader does not wake clients', 'tabs/leader.ts', '    this.wakeClients(wakes);\n  }', '  }'],
  ['leader does not report a crash', 'tabs/leader.ts', 'if (served !== undefined) this.#post(served, { type: \'crashed\'', 'if (false) this.#post(served!, { type: \'crashed\''],
  ['client resends under another number', 'tabs/client.ts', 'seq: flight.seq, message', 'seq: (flight as { seq: number }).seq = ++this.#seq, message'],
  ['client does not send its state', 'tabs/client.ts', '{ state: this.#state, readOnly }', '{ state: null, readOnly }'],
  ['client always says that nothing was done', 'tabs/client.ts', 'return wasSent\n', 'return false\n'],
  ['client waits for ever', 'tabs/client.ts', 'if (waitedMs < this.#options.deadlineMs) return;', 'return;'],
  ['client repeats a request that crashes the engine for ever', 'tabs/client.ts', 'const MAX_CRASHES = 2;', 'const MAX_CRASHES = Infinity;'],
  ['client does not check whether it missed a wake-up', 'tabs/client.ts', 'if (version > this.#version) this.#page.wake();', ''],
  ['client asks again for all of a message that was cut', 'tabs/client.ts', 'flight.message.slice(cut.at)', 'flight.message.slice()'],
  ['peer waits for ever for a leader that does not take it', 'tabs/peer.ts', 'this.#role === \'joining\' || this.#role === \'follower\'', 'this.#role === \'follower\''],
  ['peer waits for ever for a leader', 'tabs/peer.ts', '!this.#client.hasOpened && isWaiting && now', 'false && now'],
  ['peer releases the lock before it closes the files', 'tabs/peer.ts', 'const failure = this.#closeLeader(forgetsOwn);\n', 'this.#letGo();\n    const failure = this.#closeLeader(forgetsOwn);\n'],
  ['peer that was served before gives up for lack of room', 'tabs/peer.ts', 'this.#client.hasOpened && error.retryable', 'this.#client.hasOpened && error.code === \'KV_LOCKED\''],
  ['peer does not try to lead again', 'tabs/peer.ts', 'if (this.#role === \'follower\') this.#queue(false);\n    });', '});'],
  ['peer does not open again after a crash', 'tabs/peer.ts', '    this.#page.backgroundError(error);', '    return this.#page.backgroundError(error);'],
  ['peer leads in a past term', 'tabs/peer.ts', 'Math.max(this.#client.term + 1, Math.floor(this.#env.time()))', 'Math.floor(this.#env.time() / 3_600_000)'],
];

function mutate(source, [name, , ...changes]) {
  for (let i = 0; i < changes.length; i += 2) source = replaceOnce(source, changes[i], changes[i + 1], name);
  return source;
}

/** Bundles the files with the mutation; returns the paths of the bundles. */
async function bundle(files, mutation) {
  const path = mutation && join(SOURCES, mutation[1]);
  const changed = mutation && { path, contents: mutate(readFileSync(path, 'utf8'), mutation) };
  await bundleWith({ files, directory, ...changed });
  return files.map((file) => join(directory, file.replace(/^.*\/(.*)\.ts$/, '$1.mjs')));
}

function run(args) {
  const env = { ...process.env, MANGROVE_PROCESSES_SCHEDULES: SCHEDULES, MANGROVE_PROCESSES_FAILURES: '1', MANGROVE_PROCESSES_TRACE: 'no' };
  const { status, stdout } = spawnSync(process.execPath, args, { env, encoding: 'utf8', timeout: 120_000 });
  return { passed: status === 0, text: status === null ? 'hangs' : stdout };
}

async function find(mutation) {
  const stories = STORIES.map((name) => join(HERE, `${name}.test.ts`));
  const told = run(['--test', '--test-reporter', 'tap', ...await bundle(stories, mutation)]);
  if (!told.passed) return /^ *not ok .*$/m.exec(told.text)?.[0].trim() ?? told.text;
  if (TOLD.includes(mutation?.[1])) return undefined;
  const schedules = run(await bundle([join(HERE, 'simulation/run.ts')], mutation));
  return schedules.passed ? undefined : (/^seed .*$/m.exec(schedules.text)?.[0] ?? schedules.text);
}

for (const mutation of MUTATIONS) mutate(readFileSync(join(SOURCES, mutation[1]), 'utf8'), mutation);
if (process.argv.includes('--check')) process.exit();
const directory = mkdtempSync(join(tmpdir(), 'mangrove-processes-'));
const words = process.argv.slice(2);
const chosen = MUTATIONS.filter(([name]) => words.length === 0 || words.some((part) => name.includes(part)));
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
