// The rules of docs/REPLICATION.md, explored: every order of what devices, programs and servers can do in small
// scenarios. With each wrong rule exploration has to find what goes wrong.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { explore } from './explore.ts';
import type { Mistake, Scenario } from './model.ts';

type Given = Omit<Scenario, 'name'>;

const given = {
  'three devices, of which one reads': {
    devices: 3,
    keys: 1,
    may: [['set 0', 'delete 0'], ['set 0'], []],
    times: { write: 3 },
  },
  'transactions and clears': {
    devices: 2,
    keys: 2,
    may: [
      ['set 0', 'delete 0', 'pair', 'clear'],
      ['set 0', 'set 1', 'clear', 'pair'],
    ],
    times: { write: 3 },
  },
  'long transactions': { devices: 2, keys: 2, may: [['long'], ['set 1']], times: { write: 2 } },
  'commits that are captured later': {
    devices: 2,
    keys: 1,
    may: [
      ['set 0', 'delete 0'],
      ['set 0', 'delete 0'],
    ],
    times: { write: 3 },
    isLazy: true,
  },
  'lost replies, and records that are late': {
    devices: 2,
    keys: 1,
    may: [['set 0', 'delete 0'], ['set 0']],
    begin: ['set 0'],
    times: { write: 2, late: 1, 'reply lost': 1 },
  },
  'clocks that are ahead': {
    devices: 2,
    keys: 1,
    may: [['set 0'], ['set 0', 'delete 0']],
    skew: [20, 0],
    times: { write: 3, tick: 1 },
  },
  'power cuts': { devices: 2, keys: 1, may: [['set 0'], ['set 0']], isLazy: true, times: { write: 3, cut: 1 } },
  'lost history': {
    devices: 2,
    keys: 1,
    may: [['set 0'], ['delete 0']],
    begin: ['set 0'],
    times: { write: 2, lost: 1 },
  },
  'lost history of three devices': {
    devices: 3,
    keys: 1,
    may: [['set 0'], [], []],
    begin: ['set 0'],
    times: { write: 1, lost: 1 },
  },
  'history that is lost twice': {
    devices: 2,
    keys: 1,
    may: [[], ['set 0']],
    begin: ['set 0'],
    times: { write: 1, lost: 2 },
  },
  'a delete that is put back and lost again': {
    devices: 1,
    keys: 1,
    may: [['delete 0']],
    begin: ['set 0'],
    times: { write: 1, lost: 2, compact: 1 },
  },
  'lost history and long transactions': { devices: 2, keys: 2, may: [['long'], []], times: { write: 1, lost: 1 } },
  'lost history, and records that are late': {
    devices: 2,
    keys: 1,
    may: [['set 0'], ['set 0']],
    times: { write: 2, lost: 1, late: 1 },
  },
  'lost history, and servers that recognize what they lost': {
    devices: 2,
    keys: 1,
    may: [['set 0'], ['delete 0']],
    begin: ['set 0'],
    isRemembered: true,
    times: { write: 2, lost: 1 },
  },
  'lost history and clears': {
    devices: 2,
    keys: 1,
    may: [['set 0'], ['clear']],
    begin: ['set 0'],
    times: { write: 2, lost: 1 },
  },
  'lost history and clears of two keys': {
    devices: 2,
    keys: 2,
    may: [['clear'], ['set 0']],
    begin: ['set 1'],
    times: { write: 2, lost: 1 },
  },
  'a record lost in the middle': {
    devices: 2,
    keys: 1,
    may: [['set 0', 'delete 0'], []],
    times: { write: 3, hole: 1 },
  },
  'a record lost in the middle, and writes that knew it': {
    devices: 2,
    keys: 1,
    may: [['set 0', 'delete 0'], ['set 0']],
    times: { write: 3, hole: 1 },
  },
  'a record of several commits lost in the middle': {
    devices: 2,
    keys: 1,
    may: [['set 0'], ['set 0']],
    isLazy: true,
    times: { write: 3, hole: 1 },
  },
  'a record lost in the middle, and a clear of its device': {
    devices: 2,
    keys: 1,
    may: [['set 0', 'clear'], []],
    times: { write: 3, hole: 1 },
  },
  'a part lost in the middle': { devices: 2, keys: 2, may: [['long'], []], times: { write: 1, hole: 1 } },
  'long transactions that take months': {
    devices: 2,
    keys: 2,
    may: [['long'], ['set 1']],
    times: { write: 2, forget: 1 },
  },
  'long transactions that take months, and compaction': {
    devices: 2,
    keys: 2,
    may: [['long'], []],
    times: { write: 1, forget: 1, compact: 1, connect: 1 },
  },
  'long transactions whose writer is gone': {
    devices: 2,
    keys: 2,
    may: [['long'], ['set 1']],
    times: { write: 2, forget: 1, gone: 1 },
  },
  'copies of files': { devices: 1, keys: 1, may: [['set 0', 'delete 0']], times: { write: 3, copy: 1 } },
  'copies of files, and records that are late': {
    devices: 1,
    keys: 1,
    may: [['set 0']],
    times: { write: 2, copy: 1, late: 1, compact: 1 },
  },
  'compaction': { devices: 2, keys: 1, may: [['set 0', 'delete 0'], ['set 0']], times: { write: 3, compact: 2 } },
  'compaction of what three devices have': {
    devices: 3,
    keys: 1,
    may: [['set 0', 'delete 0'], ['set 0'], []],
    begin: ['set 0'],
    times: { write: 2, compact: 2 },
  },
  'compaction of long transactions': {
    devices: 2,
    keys: 2,
    may: [['long'], ['set 1']],
    times: { write: 2, compact: 2 },
  },
  'checks and compaction': {
    devices: 2,
    keys: 1,
    may: [['set 0', 'delete 0'], ['set 0']],
    times: { write: 2, check: 1, compact: 1 },
  },
  'compaction and copies of files': { devices: 1, keys: 1, may: [['set 0']], times: { write: 3, compact: 2, copy: 1 } },
  'compaction, and a tail that is lost': {
    devices: 2,
    keys: 1,
    may: [['set 0'], ['set 0']],
    times: { write: 2, compact: 2, lost: 1 },
  },
  'compaction, and tails that are lost twice': {
    devices: 1,
    keys: 2,
    may: [['set 1']],
    begin: ['set 0'],
    times: { write: 2, compact: 3, lost: 2 },
  },
  'a snapshot that alone has what the log lost': {
    devices: 2,
    keys: 1,
    may: [['set 0'], []],
    times: { write: 1, compact: 1, lost: 1, gone: 1 },
  },
  'what is left of a log whose newest snapshot has more': {
    devices: 2,
    keys: 2,
    may: [[]],
    begin: ['set 0', 'set 1'],
    times: { compact: 1, lost: 1 },
  },
  'expiry': {
    devices: 2,
    keys: 1,
    may: [['expiring 0', 'set 0'], ['set 0']],
    skew: [0, 20],
    times: { write: 2, tick: 1, removal: 1, clock: 1 },
  },
  'strict transactions': {
    devices: 2,
    keys: 1,
    may: [['strict 0'], ['strict 0']],
    strict: [0],
    times: { write: 3, late: 1 },
  },
  'strict and other writes': {
    devices: 2,
    keys: 2,
    may: [['strict 0', 'set 1'], ['strict 0']],
    strict: [0],
    times: { write: 3 },
  },
  'strict transactions and power cuts': {
    devices: 2,
    keys: 1,
    may: [['strict 0'], ['strict 0']],
    strict: [0],
    times: { write: 3, cut: 1, 'reply lost': 1 },
  },
  'strict transactions and lost history': {
    devices: 2,
    keys: 1,
    may: [['strict 0'], ['strict 0']],
    begin: ['strict 0'],
    strict: [0],
    times: { write: 2, lost: 1 },
  },
  'a first strict transaction that is lost': {
    devices: 2,
    keys: 1,
    may: [['strict 0'], []],
    strict: [0],
    times: { write: 1, lost: 1 },
  },
  'programs that know one collection of two': {
    devices: 2,
    keys: 2,
    may: [['set 0', 'set 1'], ['set 1']],
    knows: [-1, 1],
    times: { write: 2, program: 2 },
  },
  'a program that never knew a collection': {
    devices: 2,
    keys: 2,
    may: [['set 1'], []],
    knows: [1, -1],
    times: { write: 2, program: 1, compact: 2 },
  },
  'a program that does not know a collection compacts where one led that does': {
    devices: 2,
    keys: 2,
    may: [['set 1'], []],
    knows: [-1, 1],
    times: { write: 2, program: 1, compact: 2 },
  },
  'a program that does not know a collection puts back what the log lost': {
    devices: 2,
    keys: 2,
    may: [['set 1'], []],
    knows: [-1, 1],
    times: { write: 2, program: 1, lost: 1 },
  },
  'records of a newer program': {
    devices: 2,
    keys: 2,
    may: [['newer 0'], ['set 1']],
    knows: [-1, 3],
    times: { write: 2, program: 2, compact: 1 },
  },
  'forgotten tombstones': {
    devices: 2,
    keys: 1,
    may: [['set 0', 'delete 0'], ['set 0']],
    begin: ['set 0'],
    times: { write: 3, forget: 1 },
  },
  'forgotten tombstones and compaction': {
    devices: 2,
    keys: 1,
    may: [['delete 0', 'set 0'], ['set 0']],
    begin: ['set 0'],
    times: { write: 2, forget: 1, compact: 2 },
  },
} as const satisfies Record<string, Given>;

const named = (name: string, scenario: Given): Scenario => ({ name, ...scenario });

for (const [name, scenario] of Object.entries<Given>(given)) {
  test(`every order of steps: ${name}`, (t) => {
    const { states, quiescent, violation } = explore(named(name, scenario));
    assert.equal(violation, undefined, violation);
    assert.ok(quiescent > 0);
    t.diagnostic(`${states} states, ${quiescent} of them quiescent`);
  });
}

type Name = keyof typeof given;

/** Each wrong rule, and where it shows. */
const mistakes: readonly (readonly [mistake: Mistake, where: Name | Given])[] = [
  ['what is read again meets the former base', 'strict transactions and lost history'],
  ['a snapshot lacks what the program does not know', 'a program that never knew a collection'],
  ['what a program does not know is not captured', 'programs that know one collection of two'],
  ['an own clock tells what is over', 'expiry'],
  ['removals by expiry are sent', 'expiry'],
  ['applying does not capture first', 'commits that are captured later'],
  ['a lost record keeps its number', 'a record lost in the middle'],
  ['numbers are given when a record is sent', 'a record lost in the middle'],
  ['parts leave the outbox one by one', 'a part lost in the middle'],
  [
    "the log's time survives a reread",
    { devices: 2, keys: 1, may: [['set 0'], ['delete 0']], begin: ['set 0'], times: { write: 2, forget: 1, lost: 1 } },
  ],
  ['a copy keeps its id', 'copies of files'],
  ['n is given when a record is sent', 'a record lost in the middle'],
  ['a record that is sent again counts as newer', 'a record lost in the middle'],
  ['acknowledged records are confirmed', 'copies of files'],
  ['bases survive lost history', 'lost history'],
  [
    'tombstones are forgotten by an own clock',
    {
      devices: 3,
      keys: 1,
      may: [['set 0'], ['delete 0'], []],
      begin: ['set 0'],
      skew: [0, 0, 100],
      times: { write: 2 },
    },
  ],
  ['a snapshot does not wait for what is pending', 'compaction'],
  ['a snapshot purges up to itself', 'compaction'],
  ['strict records count wherever they are', 'strict transactions'],
  ['repairs get stamps of their own', 'lost history'],
  ['entries change before the end of the log', 'lost history'],
  ['lost history is read like purged history', 'lost history'],
  ['what is pending keeps its base', 'lost history'],
  ['a second loss takes the former base', 'history that is lost twice'],
  ['clocks decide about what was known', 'clocks that are ahead'],
  [
    'clocks do not learn',
    { devices: 2, keys: 1, may: [['set 0'], ['set 0']], skew: [2, 0], times: { write: 2, lost: 1 } },
  ],
  ['records are applied again', { devices: 1, keys: 2, may: [['long']], times: { write: 1, late: 1 } }],
  ['readers wait for records that are missing', 'a record lost in the middle'],
  ['the number tells whose a record is', 'copies of files'],
  ['parts take effect one by one', 'long transactions'],
  ['a clear leaves no tombstones', 'lost history and clears'],
  ['what arrives replaces what is pending', 'three devices, of which one reads'],
  ['any confirmed record ends what is pending', 'three devices, of which one reads'],
  ['a record that is lost at the end is not sent again', 'a record lost in the middle'],
  ['a snapshot confirms by number', 'compaction and copies of files'],
  ['snapshots have no tombstones', 'compaction'],
  ['a device that set records aside compacts', 'records of a newer program'],
  [
    'what a power cut takes back is sent',
    {
      devices: 2,
      keys: 1,
      may: [['set 0'], ['set 0']],
      isLazy: true,
      times: { write: 2, connect: 1, cut: 1, tick: 1 },
    },
  ],
  ['values that expire are not kept', 'expiry'],
  ['a record that comes again is raised above itself', 'a record lost in the middle, and writes that knew it'],
  [
    'only the first write to a key keeps its clock when its record comes again',
    'a record of several commits lost in the middle',
  ],
  ['a clear says nothing of what is pending', 'a record lost in the middle, and a clear of its device'],
  ['a clear says nothing of what is pending', 'lost history and clears'],
  ['a clear that is pending stays as it was', 'lost history and clears'],
  ['what a clear removed is put into a repair', 'lost history and clears of two keys'],
  ["what a clear removed is put into a repair with the device's clock", 'lost history and clears'],
  [
    'entries that a program does not know cannot be read',
    'a program that does not know a collection compacts where one led that does',
  ],
  [
    'entries that a program does not know cannot be read',
    'a program that does not know a collection puts back what the log lost',
  ],
  ['a strict transaction that was put back counts as refused', 'a first strict transaction that is lost'],
  ['parts wait for ever', 'long transactions whose writer is gone'],
  ['the last part confirms all', 'long transactions that take months'],
  ['a snapshot confirms parts that had no effect', 'long transactions that take months, and compaction'],
  ['the newest snapshot is the base whatever the log lost', 'what is left of a log whose newest snapshot has more'],
  ['what the newest snapshot has beyond is not put back', 'a snapshot that alone has what the log lost'],
];

for (const [mistake, where] of mistakes) {
  test(`exploration finds what is wrong if ${mistake}`, (t) => {
    const scenario = typeof where === 'string' ? named(where, given[where]) : named('its own', where);
    const { states, violation } = explore(scenario, [mistake]);
    assert.notEqual(violation, undefined, `${scenario.name}: ${states} states, and nothing is wrong`);
    t.diagnostic(`${states} states: ${(violation as string).split('\n')[0]}`);
  });
}

/** What the rules do not keep, as a user sees it, and what exploration has to find: if one is gone, a rule is better than before. */
const limits: readonly (readonly [what: string, where: Given, outcome: RegExp])[] = [
  [
    'an entry that another device cleared comes back if the log loses its write in the middle',
    { devices: 2, keys: 1, may: [['set 0'], ['clear']], times: { write: 2, hole: 1 } },
    /replaced that/,
  ],
  [
    'an entry that was cleared comes back if the clear is on its way while the log loses its history',
    { devices: 2, keys: 1, may: [[], ['clear']], begin: ['set 0'], times: { write: 1, lost: 1, late: 1 } },
    /replaced that/,
  ],
  [
    'an older value comes back over one that knew it if its clock was ahead and the log loses it in the middle',
    { devices: 2, keys: 1, may: [['set 0'], ['set 0']], skew: [50, 0], times: { write: 2, hole: 1, tick: 1 } },
    /goes back behind/,
  ],
  [
    'a device that does not notice a loss shows what others do not have',
    { devices: 2, keys: 1, may: [['set 0'], ['set 0']], isUnnoticed: true, times: { write: 2, lost: 1 } },
    /and the log says/,
  ],
  [
    'a device replaces what it cannot understand as if it had seen it',
    { devices: 2, keys: 1, may: [['newer 0'], ['set 0']], knows: [-1, 1], times: { write: 2, program: 1 } },
    /which it did not/,
  ],
  [
    'what only the newest snapshot has stays away until a device loads it',
    { devices: 2, keys: 1, may: [['set 0'], []], begin: ['set 0'], times: { write: 1, compact: 2, lost: 1, gone: 1 } },
    /replaced that/,
  ],
];

for (const [what, where, outcome] of limits) {
  test(`known limit: ${what}`, (t) => {
    const { violation = 'nothing' } = explore(named('its own', where));
    assert.match(violation, outcome);
    t.diagnostic(violation.split('\n')[0] as string);
  });
}

/** Where the document chooses, and exploration finds nothing wrong with the other choice. */
const choices: readonly (readonly [choice: Mistake, where: Name | Given])[] = [
  [
    "a record of a newer program moves the log's time",
    {
      devices: 2,
      keys: 2,
      may: [['newer 0'], ['expiring 1']],
      knows: [-1, 3],
      times: { write: 2, program: 1, tick: 1 },
    },
  ],
  // A device that reads its own records without having them takes another id then.
  ['lost history leaves the id', 'lost history'],
];

for (const [choice, where] of choices) {
  test(`nothing is wrong if ${choice}`, (t) => {
    const { states, violation } = explore(
      typeof where === 'string' ? named(where, given[where]) : named('its own', where),
      [choice],
    );
    assert.equal(violation, undefined, violation);
    t.diagnostic(`${states} states`);
  });
}
