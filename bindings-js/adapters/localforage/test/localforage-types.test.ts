// A program that is typed against localForage compiles with the changed import.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const PROGRAM = `
import localforage from 'localforage';

interface User { name: string }
const settings: LocalForageOptions = { name: 'app', storeName: 'users', version: 2, size: 1, description: '', driver: [localforage.INDEXEDDB, localforage.WEBSQL, localforage.LOCALSTORAGE] };
const users: LocalForage = localforage.createInstance(settings);
const methods: LocalForageDbMethods = users;
const driver: LocalForageDriver = {
  _driver: 'mine',
  _support: () => Promise.resolve(true),
  _initStorage: (options: LocalForageOptions) => void options,
  getItem: <T>(key: string, callback?: (err: any, value: T | null) => void) => localforage.getItem<T>(key, callback),
  setItem: (key, value) => localforage.setItem(key, value),
  removeItem: (key) => localforage.removeItem(key),
  clear: () => localforage.clear(),
  length: () => localforage.length(),
  key: (index) => localforage.key(index),
  keys: () => localforage.keys(),
  iterate: (iteratee) => localforage.iterate(iteratee),
};
const drop: LocalForageDropInstanceFn = (options, callback) => localforage.dropInstance(options, callback);
export async function main(): Promise<User | null> {
  await localforage.defineDriver(driver);
  const changed: boolean = localforage.config({ name: 'x' });
  const name: string = localforage.config('name');
  const serializer: LocalForageSerializer = await localforage.getSerializer();
  await localforage.setDriver([localforage.INDEXEDDB, 'mine'], () => undefined, (error: Error) => console.log(error.message));
  users.getItem<User>('ada', (error: Error, value) => console.log(error, value?.name));
  users.setItem('ada', { name: 'Ada' }, (_error, value) => console.log(value.name));
  users.length((_error, count) => console.log(count.toFixed()));
  users.keys((_error, keys) => console.log(keys[0]?.length));
  const found: string = await users.iterate<User, string>((user, key, number) => user.name + key + number.toFixed());
  await drop({ name: 'app', storeName: 'users' });
  localforage.ready((error) => console.log(error.message));
  console.log(changed, name, serializer.stringToBuffer(''), found, methods, localforage.driver().length, localforage.supports('x'));
  return users.getItem<User>('ada');
}
// @ts-expect-error A key is a string.
void users.getItem(1);
// @ts-expect-error There is no such option.
localforage.config({ nonsense: 1 });
`;

const OPTIONS =
  '--ignoreConfig --noEmit --strict --target es2022 --module nodenext --lib es2022,dom --types node --esModuleInterop'.split(
    ' ',
  );

test('a program compiles with either import, and with both packages', () => {
  const root = new URL('..', import.meta.url).pathname;
  const directory = mkdtempSync(join(root, 'test-types-'));
  try {
    const files = {
      'original.ts': PROGRAM,
      'twin.ts': PROGRAM.replace("'localforage'", "'@mangrove-kv/localforage'"),
      'both.ts': `import original from 'localforage';\nimport twin from '@mangrove-kv/localforage';\nexport const all: LocalForage[] = [original, twin];\n`,
    };
    for (const [name, text] of Object.entries(files)) {
      writeFileSync(join(directory, name), text);
      const tsc = join(root, '..', '..', '..', 'node_modules', '.bin', 'tsc');
      const { status, stdout } = spawnSync(tsc, [...OPTIONS, join(directory, name)], { encoding: 'utf8' });
      assert.equal(stdout, '', name);
      assert.equal(status, 0, name);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
