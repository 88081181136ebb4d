// Checks that the schedules of mirrors find mistakes: makes each in a copy, and a schedule must fail or hang. Names given as
// arguments select mistakes; `--check` only looks whether each is still at one place.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { bundleWith, replaceOnce } from '../support/mutations.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const SOURCES = fileURLToPath(new URL('../../src/', import.meta.url));
const PACKAGE = pathToFileURL(fileURLToPath(new URL('../../dist/node.js', import.meta.url))).href;
const SCHEDULES = process.env.MANGROVE_MIRRORS_SCHEDULES ?? '600';
const LIMIT_MS = 300_000;

/** Name, file, then pairs of original and replacement. */
const MUTATIONS = [
  [
    'followers move on one by one',
    'hub.ts',
    'Math.min(...left.map(({ reached }) => reached))',
    'Math.max(...left.map(({ reached }) => reached))',
  ],
  [
    'commits beyond the step are dropped',
    'hub.ts',
    'follower.queue = follower.queue.filter((commit) => commit.version > version);',
    'follower.queue = [];',
  ],
  [
    'commits are applied before others have theirs',
    'hub.ts',
    'const commits = follower.queue.filter((commit) => commit.version <= version);',
    'const commits = follower.queue;',
  ],
  [
    'what was loaded is shown before the others are as far',
    'hub.ts',
    'const isFirst = ![...this.#followers].some(isFollowing);',
    'const isFirst = loaded !== undefined;',
  ],
  [
    'a write is over as soon as it is committed',
    'hub.ts',
    'write.committedAt = this.#reads;\n        this.#run();',
    'this.#end(write);\n        this.#tell();',
  ],
  [
    'a write is over with the read that was under way',
    'hub.ts',
    'write.committedAt < read',
    'write.committedAt <= read',
  ],
  [
    'a write that failed stays',
    'hub.ts',
    '      (error: unknown) => {\n        this.#end(write);',
    '      (error: unknown) => {',
  ],
  [
    'a write that failed takes later ones with it',
    'hub.ts',
    'this.#showKey(write.store, keyName, undefined);',
    'for (const each of this.#stores.values()) each.uncover(keyName);',
  ],
  ['a write that is over is shown for ever', 'hub.ts', '    this.#writes.delete(write);\n', ''],
  [
    'what is loaded while a write is under way hides it',
    'hub.ts',
    'if (loaded !== undefined) for (const write of this.#writes) this.#show(write);',
    '',
  ],
  [
    'commits that were missed are not noticed',
    'hub.ts',
    'this.#break(result.reason);\n        return false;',
    'return true;',
  ],
  [
    'only the first follower is opened again',
    'hub.ts',
    'for (const follower of this.#followers) this.#close(follower);\n    this.#run();',
    'this.#close([...this.#followers][0]!);\n    this.#run();',
  ],
  [
    'a keeper that is refused keeps others waiting',
    'hub.ts',
    '      this.#again(request);\n    } catch',
    '    } catch',
  ],
  ['what more than one reply holds is taken for all', 'hub.ts', 'follower.isBehind = !isAll;', ''],
  [
    'an update that keeps shows what it guessed',
    'hub.ts',
    'for (const keyName of before.keys()) if (!entries.has(keyName)) this.#showKey(store, keyName, undefined);',
    '',
  ],
  [
    'an update changes what is shown before',
    'writer.ts',
    'value: decodeValue(this.#target.value, encodeValue(this.#target, held.value).slice()) as V,',
    'value: held.value as V,',
  ],
  ['an update takes what is not mirrored for missing', 'store.ts', 'return this.isLoaded(keyName);', 'return true;'],
  [
    'a mirror shrinks to less than it shows',
    'hub.ts',
    'this.#cutKeeper(view, entries.at(at)!.name);',
    'this.#cutKeeper(view, entries.at(at + 1)?.name ?? entries.at(at)!.name + "\\0");',
  ],
  [
    'a segment that others need is forgotten',
    'hub.ts',
    'const spans = [...keepers].map(({ span }) => span);',
    'const spans: Span[] = [];',
  ],
  [
    'a segment keeps what is between its keepers',
    'names.ts',
    'if (last === undefined || (last.upper !== undefined && last.upper < lower)) found.push',
    'if (last === undefined) found.push',
  ],
  [
    'the entries of others count',
    'hub.ts',
    'if (having.every((keeper) => this.#bytesOf.get(keeper)! > keeper.maxBytes)) return having;',
    'return having;',
  ],
  [
    'what is behind a cut is not read again',
    'hub.ts',
    'if (!this.#isWhole(loaded)) {',
    'if (this.#stores.size === 0) {',
  ],
  [
    'the feed begins after the state that was read',
    'hub.ts',
    'failing(follower.store, this.#open(follower))',
    'failing(follower.store, turn().then(() => this.#open(follower)))',
  ],
  [
    'a clear reaches beyond its segment',
    'store.ts',
    'const stays = (held: Held): boolean => !isWithin(segment, held.name);',
    'const stays = (): boolean => false;',
  ],
  [
    'a clear does not reach what is hidden',
    'store.ts',
    'for (const keyName of this.hiddenKeys) if (isWithin(keys, keyName)) yield keyName;\n  }\n\n  protected override newItem({ name, value }: Held): unknown {\n    return [',
    '}\n\n  protected override newItem({ name, value }: Held): unknown {\n    return [',
  ],
  [
    'an index keeps the place of an older value',
    'store.ts',
    'for (const name of this.shownNames(keyName)) changes.set(name, undefined);\n    for (const held of helds)',
    'for (const held of helds)',
  ],
  ['an index shows what is outside of its range', 'store.ts', '.filter((name) => isWithin(segment, name))', ''],
  [
    'commits change what a write covers, and are lost',
    'store.ts',
    'if (hidden !== undefined) this.#hidden.set(keyName, [...hidden.filter(stays), ...helds]);',
    'if (hidden !== undefined) return;',
  ],
  [
    'commits show through a write',
    'store.ts',
    'const hidden = this.#hidden.get(keyName);\n    const stays',
    'const hidden = undefined as Held[] | undefined;\n    const stays',
  ],
  [
    'a reload keeps what is gone',
    'store.ts',
    'this.#setBase(keyName, segment, [], changes);\n    const byKey',
    'void keyName;\n    const byKey',
  ],
  [
    'an entry that has the same version is taken for the same',
    'store.ts',
    'known.expiresAt === expiresAt && this.#hasBytes(known, valueBytes)',
    'known.expiresAt === expiresAt',
  ],
  [
    'entries are merged in the order in which they come',
    'sorted-entries.ts',
    'moved.sort(([a], [b]) => (a < b ? -1 : 1));',
    '',
  ],
  [
    'a merge removes the entry after the one that is gone',
    'sorted-entries.ts',
    'if (after === undefined) at++;\n      else',
    'if (after === undefined) at += 2;\n      else',
  ],
  [
    'a position is one too far',
    'sorted-entries.ts',
    'if (list[middle]!.name < name) low',
    'if (list[middle]!.name <= name) low',
  ],
  [
    'inclusive upper bounds are exclusive',
    'names.ts',
    'upper: to === undefined || upperExclusive ? to : after(to),',
    'upper: to,',
  ],
  ['a scan stays open at its end', 'hub.ts', '.u8(Content.meta)', '.u8(Content.meta | 8)'],
  [
    'a scan that ends early stays open',
    'hub.ts',
    'if (!chunk.isLast) connection.postLater((writer) => writer.u8(Op.scanClose).uv(id));',
    '',
  ],
  [
    'the snapshot that was read stays open',
    'hub.ts',
    'connection.postLater((writer) => writer.u8(Op.snapshotClose).uv(snapshot));',
    '',
  ],
  [
    'the commits that were followed stay open',
    'hub.ts',
    'this.#connection.postLater((writer) => writer.u8(Op.changesClose).uv(id));',
    '',
  ],
  [
    'gaps between segments are not found',
    'names.ts',
    'if (lower < other.lower) found.push({ lower, upper: other.lower });',
    '',
  ],
];

function mutate(source, [name, , ...changes]) {
  for (let i = 0; i < changes.length; i += 2) source = replaceOnce(source, changes[i], changes[i + 1], name);
  return source;
}

const pathOf = ([, file]) => join(SOURCES, 'mirror', file);
const directory = mkdtempSync(join(tmpdir(), 'mangrove-mirrors-'));

const mirrorsOfSources = {
  name: 'mirrors-of-sources',
  setup({ onResolve }) {
    onResolve({ filter: /^mangrove-kv\/live$/ }, () => ({ path: join(SOURCES, 'live/live.ts') }));
    onResolve({ filter: /^mangrove-kv$/ }, () => ({ path: PACKAGE, external: true }));
  },
};

const STORIES = join(HERE, 'mirrors.test.ts');

async function find(mutation) {
  const changed = mutation && {
    path: pathOf(mutation),
    contents: mutate(readFileSync(pathOf(mutation), 'utf8'), mutation),
  };
  await bundleWith({ files: [join(HERE, 'run.ts'), STORIES], directory, plugins: [mirrorsOfSources], ...changed });
  const env = { ...process.env, MANGROVE_MIRRORS_SCHEDULES: SCHEDULES };
  for (const [file, ...args] of [['mirrors.test.mjs', '--test', '--test-reporter', 'tap'], ['run.mjs']]) {
    const options = { env, encoding: 'utf8', timeout: LIMIT_MS };
    const { status, stdout, stderr } = spawnSync(process.execPath, [...args, join(directory, file)], options);
    if (status === 0) continue;
    return (
      /seed \d+.*|^ *not ok .*|\w*Error.*/m
        .exec(stdout + stderr)?.[0]
        .trim()
        .slice(0, 160) ?? 'hangs'
    );
  }
  return undefined;
}

const words = process.argv.slice(2).filter((word) => word !== '--check');
const chosen = process.argv.includes('--check')
  ? []
  : MUTATIONS.filter(([name]) => words.length === 0 || words.some((part) => name.includes(part)));
for (const mutation of MUTATIONS) mutate(readFileSync(pathOf(mutation), 'utf8'), mutation);
if (process.argv.includes('--check')) process.exit();
try {
  let missed = 0;
  const wrong = await find(undefined);
  if (wrong !== undefined) throw new Error(`something fails without a mistake: ${wrong}`);
  for (const mutation of chosen) {
    const found = await find(mutation);
    if (found === undefined) missed++;
    console.log(
      `${found === undefined ? 'MISSED' : 'found'}: ${mutation[0]}${found === undefined ? '' : ` - ${found}`}`,
    );
  }
  console.log(`${chosen.length - missed} of ${chosen.length} mistakes were found`);
  process.exitCode = missed === 0 ? 0 : 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
