// When the one who leads takes a client for ended: forgotten too early, its repeated request would be
// executed twice.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Hub } from '../../src/processes/hub.ts';
import type { Introduction, Machine } from '../../src/processes/machine.ts';
import { mayLive, newClientId } from '../../src/processes/client-id.ts';
import { PROTOCOL } from '../../src/tabs/messages.ts';
import { Member } from './member.ts';

/** A machine whose timers run when the test says so. */
class FakeMachine implements Machine {
  readonly pid = 1;
  readonly title = 'test';
  readonly directory = '/database';
  readonly living = new Set<string>();
  #timers: (() => void)[] = [];

  now = (): number => 0;
  time = (): number => 0;
  nextTurn = (run: () => void): void => run();
  tryLock = (): undefined => undefined;
  holder = (): { readonly text: string; readonly isSilent: boolean } => ({ text: '', isSilent: false });
  local = (): undefined => undefined;
  setLocal = (): (() => void) => () => {};
  address = (): undefined => undefined;
  connect = (): Promise<never> => Promise.reject(new Error('nobody listens'));
  listen = (): Promise<() => void> => Promise.resolve(() => {});
  mayLive = (client: string): boolean => this.living.has(client);

  after(_ms: number, run: () => void): () => void {
    this.#timers.push(run);
    return () => {
      this.#timers = this.#timers.filter((timer) => timer !== run);
    };
  }

  /** Lets all timers end that run by now. */
  pass(): void {
    for (const run of this.#timers.splice(0)) run();
  }
}

const introduction = (client: string): Introduction => ({ protocol: PROTOCOL, client, pid: 2, title: '' });

test('a client without a connection has ended when its process has', () => {
  const machine = new FakeMachine();
  const hub = new Hub(machine);
  const gone: string[] = [];
  for (const client of ['lives', 'ended', 'cancelled']) {
    if (client === 'lives') machine.living.add(client);
    const cancel = hub.whenGone(client, () => gone.push(client));
    if (client === 'cancelled') cancel();
  }
  for (let count = 0; count < 5; count++) machine.pass();
  assert.deepEqual(gone, ['ended']);
  machine.living.clear();
  machine.pass();
  assert.deepEqual(gone, ['ended', 'lives']);
});

test('a client with a connection has ended when that has', async () => {
  const machine = new FakeMachine();
  const hub = new Hub(machine);
  let isGone = false;
  const port = hub.join(introduction('client'));
  hub.whenGone('client', () => {
    isGone = true;
  });
  for (let count = 0; count < 5; count++) machine.pass();
  assert.equal(isGone, false);
  await port?.close();
  assert.equal(isGone, true);
});

test('a client that connects again is the same one, which goes on', async () => {
  const machine = new FakeMachine();
  const hub = new Hub(machine);
  let isGone = false;
  const first = hub.join(introduction('client'));
  hub.whenGone('client', () => {
    isGone = true;
  });
  const second = hub.join(introduction('client'));
  await first?.close();
  machine.pass();
  assert.equal(isGone, false);
  assert.equal(hub.members.length, 1);
  await second?.close();
  assert.equal(isGone, true);
});

test('a name tells whether its process runs', async () => {
  const own = newClientId();
  assert.notEqual(own, newClientId());
  assert.ok(mayLive(own));
  const [realm, pid, started, unique] = own.split('.');
  const child = Member.start();
  const named = [realm, child.pid, '', unique].join('.');
  assert.ok(mayLive(named));
  await child.kill();
  // Where processes cannot be told from those of another machine, nothing is known.
  assert.equal(mayLive(named), realm === '');
  // The number of a process that ended may be another's by now.
  if (realm !== '' && started !== '') assert.equal(mayLive([realm, pid, '1', unique].join('.')), false);
  // Nothing is known of processes elsewhere.
  assert.ok(mayLive(['elsewhere', ...named.split('.').slice(1)].join('.')));
});
