// What localForage 1.10 does, as cases that localForage itself and its twin pass. localForage publishes no tests; the
// cases named in `upstream.ts` have the names of those in its repository and were written anew.
import { failsWith, same } from '../../../../migrate/test/support/show.ts';
import type { Case } from '../../../../migrate/test/support/show.ts';

/** The library under test, and the settings of its instances. */
export interface Library {
  readonly localforage: LocalForage;
  readonly settings: LocalForageOptions;
  /** Closes the database of an instance: a page has room for about a hundred. */
  close?(instance: LocalForage): Promise<void>;
}

type Method = keyof LocalForageDbMethods;
/** Calls a method, with a callback or for a promise. */
type Call = (instance: LocalForage, method: Method, ...args: unknown[]) => Promise<unknown>;

type AnyMethod = (...args: unknown[]) => Promise<unknown>;
const methodOf = (instance: LocalForage, method: Method): AnyMethod =>
  (instance[method] as unknown as AnyMethod).bind(instance);

const byPromise: Call = (instance, method, ...args) => methodOf(instance, method)(...args);
const byCallback: Call = (instance, method, ...args) =>
  new Promise((resolve, reject) => {
    methodOf(instance, method)(...args, (error: unknown, result: unknown) =>
      error === null ? resolve(result) : reject(error),
    ).catch(() => undefined);
  });

export const cases: Case<Library>[] = [];
let instances = 0;
const opened: LocalForage[] = [];

function it(name: string, run: (library: Library) => Promise<void>): void {
  cases.push({
    name,
    async run(library) {
      await run(library);
      for (const instance of opened.splice(0)) await library.close?.(instance);
    },
  });
}

/** An instance with a store of its own. */
function fresh({ localforage, settings }: Library, options: LocalForageOptions = {}): LocalForage {
  const instance = localforage.createInstance({ ...settings, name: `fresh ${++instances}`, ...options });
  opened.push(instance);
  return instance;
}

async function messageOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'no error',
    (error: Error) => error.message,
  );
}

const NONE = 'No available storage method found.';
const NOT_COMPLIANT = 'Custom driver not compliant; see https://mozilla.github.io/localForage/#definedriver';

it('localForage: automatically selects the most appropriate driver', async (library) => {
  const instance = fresh(library);
  await instance.ready();
  await same(instance.driver(), instance.INDEXEDDB);
});

it('localForage: errors when a requested driver is not found [callback]', async ({ localforage }) => {
  const error = await new Promise<Error>((resolve) => {
    const getDriver = localforage.getDriver.bind(localforage) as unknown as (...args: unknown[]) => Promise<unknown>;
    getDriver('UnknownDriver', null, resolve).catch(() => undefined);
  });
  await same([error instanceof Error, error.message], [true, 'Driver not found.']);
});

it('localForage: errors when a requested driver is not found [promise]', async ({ localforage }) =>
  same(await messageOf(localforage.getDriver('UnknownDriver')), 'Driver not found.'));

it('localForage: retrieves the serializer [callback]', async ({ localforage }) => {
  const found = await new Promise<LocalForageSerializer>((resolve) => {
    void localforage.getSerializer(resolve);
  });
  await same(typeof found, 'object');
});

it('localForage: retrieves the serializer [promise]', async ({ localforage }) => {
  const serializer = await localforage.getSerializer();
  const bytes = Uint8Array.from({ length: 1000 }, (_, index) => index % 256).buffer;
  await same(serializer.stringToBuffer(serializer.bufferToString(bytes)), bytes);
  const text = await new Promise<string>((resolve) => {
    serializer.serialize(new Uint16Array([1, 515]), resolve);
  });
  await same([text, serializer.deserialize(text)], ['__lfsc__:ur16AQADAg==', new Uint16Array([1, 515])]);
  await same(serializer.deserialize('{"a":[1]}'), { a: [1] });
});

it('localForage: does not support object parameter to setDriver', async (library) => {
  const instance = fresh(library);
  const order = { 0: instance.INDEXEDDB, 1: instance.LOCALSTORAGE, length: 2 };
  await same(await messageOf(instance.setDriver(order as never)), NONE);
});

function stub(name: string, own: object = {}): LocalForageDriver {
  const items = new Map<string, unknown>();
  return {
    _driver: name,
    _initStorage: () => Promise.resolve(),
    iterate: () => Promise.resolve(),
    getItem: (key: string, callback?: (error: unknown, value: unknown) => void) => {
      callback?.(null, items.get(key));
      return Promise.resolve(items.get(key));
    },
    setItem: (key: string, value: unknown, callback?: (error: unknown, value: unknown) => void) => {
      items.set(key, value);
      callback?.(null, value);
      return Promise.resolve(value);
    },
    removeItem: () => Promise.resolve(),
    clear: () => Promise.resolve(),
    length: () => Promise.resolve(items.size),
    key: () => Promise.resolve(''),
    keys: () => Promise.resolve([...items.keys()]),
    ...own,
  } as LocalForageDriver;
}

it('localForage: skips drivers that fail to initilize', async (library) => {
  const instance = fresh(library);
  await instance.defineDriver(stub('failing', { _initStorage: () => Promise.reject(new Error('no')) }));
  await instance.setDriver(['failing', instance.INDEXEDDB, instance.LOCALSTORAGE]);
  await instance.ready();
  await same(instance.driver(), instance.INDEXEDDB);
  await same(await instance.setItem('a', 1), 1);
});

it('createInstance(): does not log unnecessary messages', async (library) => {
  const logs: unknown[] = [];
  const { info } = console;
  console.info = (...args: unknown[]) => void logs.push(args);
  try {
    await Promise.all([fresh(library).ready(), fresh(library).ready()]);
  } finally {
    console.info = info;
  }
  await same(logs, []);
});

// Each of them with both drivers.

const METHODS: Method[] = ['getItem', 'setItem', 'clear', 'length', 'removeItem', 'key', 'keys', 'iterate'];

type DriverBody = (given: { instance: LocalForage; library: Library; driver: string; call: Call }) => Promise<void>;

/** A case for each driver. */
function each(name: string, body: DriverBody, call = byPromise): void {
  for (const kind of ['INDEXEDDB', 'LOCALSTORAGE'] as const) {
    it(`${kind}: ${name}`, async (library) => {
      const driver = library.localforage[kind];
      if (!library.localforage.supports(driver)) throw new Error(`${driver} is not supported`);
      if (kind === 'LOCALSTORAGE') localStorage.clear();
      await body({ instance: fresh(library, { driver }), library, driver, call });
    });
  }
}

/** A case for each driver with callbacks, and one with promises. */
function both(name: string, body: DriverBody): void {
  each(`${name} [callback]`, body, byCallback);
  each(`${name} [promise]`, body, byPromise);
}

each('has a localStorage API', async ({ instance }) =>
  same(
    METHODS.map((name) => typeof instance[name]),
    METHODS.map(() => 'function'),
  ),
);

each('has the localForage API', async ({ instance }) => {
  await instance.ready();
  const all = [
    ...METHODS,
    '_initStorage',
    'config',
    'defineDriver',
    'driver',
    'supports',
    'getDriver',
    'setDriver',
    'ready',
    'createInstance',
    'getSerializer',
    'dropInstance',
  ];
  await same(
    all.filter((name) => typeof (instance as unknown as Record<string, unknown>)[name] !== 'function'),
    [],
  );
});

each('supports the database driver', async ({ instance, driver }) =>
  same([instance.supports(driver), instance.supports('I am not a driver')], [true, false]),
);

each('sets the right database driver', async ({ instance, driver }) => {
  await instance.ready();
  await same([instance.driver(), instance.config('driver')], [driver, driver]);
});

each('has an empty length by default', async ({ instance }) => same(await instance.length(), 0), byCallback);

both('should iterate', async ({ instance, call }) => {
  await call(instance, 'setItem', 'officeX', 'InitechX');
  await call(instance, 'setItem', 'officeY', 'InitechY');
  const seen: Record<string, unknown> = {};
  const numbers: number[] = [];
  const result = await call(instance, 'iterate', (value: unknown, key: string, number: number) => {
    seen[key] = value;
    numbers.push(number);
  });
  await same([result, seen['officeX'], seen['officeY'], numbers], [undefined, 'InitechX', 'InitechY', [1, 2]]);
});

both('should break iteration with defined return value', async ({ instance, call }) => {
  await call(instance, 'setItem', 'a', 1);
  await call(instance, 'setItem', 'b', 2);
  let visits = 0;
  const result = await call(instance, 'iterate', () => {
    visits++;
    return 'Some value!';
  });
  await same([visits, result], [1, 'Some value!']);
  await same(await call(instance, 'iterate', () => false), false);
});

each('should iterate() through only its own keys/values', async ({ instance, driver }) => {
  if (driver === instance.LOCALSTORAGE) localStorage.setItem('local', 'forage');
  await instance.setItem('office', 'Initech');
  await instance.setItem('name', 'Bob');
  const seen: unknown[] = [];
  await instance.iterate((value, key, number) => void seen.push([key, value, number]));
  await same(seen.length, 2);
});

both('nested getItem inside clear works', async ({ instance, call }) => {
  await instance.setItem('hello', 'Hello World !');
  await call(instance, 'clear');
  await same(await call(instance, 'getItem', 'hello'), null);
});

both('returns null for undefined key', async ({ instance, call }) =>
  same(await call(instance, 'getItem', undefined), null),
);

both('saves an item', async ({ instance, call }) => {
  await same(await call(instance, 'setItem', 'office', 'Initech'), 'Initech');
  await same(await call(instance, 'getItem', 'office'), 'Initech');
});

both('saves an item over an existing key', async ({ instance, call }) => {
  await call(instance, 'setItem', '4th floor', 'Mozilla');
  await call(instance, 'setItem', '4th floor', 'Quora');
  await same([await call(instance, 'getItem', '4th floor'), await instance.length()], ['Quora', 1]);
});

both('returns null when saving undefined', async ({ instance, call }) =>
  same(await call(instance, 'setItem', 'undef', undefined), null),
);

both('returns null when saving null', async ({ instance, call }) =>
  same(await call(instance, 'setItem', 'null', null), null),
);

both('returns null for a non-existant key', async ({ instance, call }) =>
  same(await call(instance, 'getItem', 'undef'), null),
);

both('returns null from an undefined key', async ({ instance, call }) => same(await call(instance, 'key', 0), null));

both('returns key name', async ({ instance, call }) => {
  await instance.setItem('office', 'Initech');
  await same(
    [await call(instance, 'key', 0), await call(instance, 'key', 1), await call(instance, 'key', -1)],
    ['office', null, null],
  );
});

both('removes an item', async ({ instance, call }) => {
  await instance.setItem('office', 'Initech');
  await instance.setItem('otherOffice', 'Initrode');
  await same(await call(instance, 'removeItem', 'office'), undefined);
  await same([await instance.getItem('office'), await instance.getItem('otherOffice')], [null, 'Initrode']);
});

both('removes all items', async ({ instance, call }) => {
  await instance.setItem('office', 'Initech');
  await instance.setItem('otherOffice', 'Initrode');
  await same(await call(instance, 'clear'), undefined);
  await same([await instance.getItem('office'), await instance.length()], [null, 0]);
});

const foreign = (name: string, body: (instance: LocalForage) => Promise<void>): void =>
  each(name, async ({ instance, driver }) => {
    if (driver === instance.LOCALSTORAGE) localStorage.setItem('local', 'forage');
    await instance.setItem('office', 'Initech');
    await body(instance);
    if (driver === instance.LOCALSTORAGE) await same(localStorage.getItem('local'), 'forage');
  });

foreign('removes only own items upon clear', async (instance) => instance.clear());
foreign('returns only its own keys from keys()', async (instance) => same(await instance.keys(), ['office']));
foreign('counts only its own items with length()', async (instance) => same(await instance.length(), 1));

both('has a length after saving an item', async ({ instance, call }) => {
  await same(await call(instance, 'length'), 0);
  await instance.setItem('rapper', 'Black Thought');
  await same(await call(instance, 'length'), 1);
});

for (const [name, key] of [
  ['an undefined', undefined],
  ['a null', null],
  ['a float', 537.35737],
] as const) {
  each(`casts ${name} key to a String`, async ({ instance }) => {
    await instance.setItem(key as never, 'goodness!');
    await same(
      [await instance.getItem(key as never), await instance.getItem(String(key)), await instance.keys()],
      ['goodness!', 'goodness!', [String(key)]],
    );
    await instance.removeItem(key as never);
    await same(await instance.length(), 0);
  });
}

each('is retrieved by getDriver [callback]', async ({ instance, driver }) => {
  const getDriver = instance.getDriver.bind(instance) as unknown as (...args: unknown[]) => Promise<unknown>;
  const found = await new Promise<LocalForageDriver>((resolve) => void getDriver(driver, resolve));
  await same(found._driver, driver);
});

each('is retrieved by getDriver [promise]', async ({ instance, driver }) =>
  same((await instance.getDriver(driver))._driver, driver),
);

it('LOCALSTORAGE: exposes the serializer on the dbInfo object', async (library) => {
  const instance = fresh(library, { driver: library.localforage.LOCALSTORAGE });
  await instance.ready();
  const { serializer } = (instance as unknown as { _dbInfo: { serializer: LocalForageSerializer } })._dbInfo;
  await same(typeof serializer.deserialize, 'function');
});

/** Instances of one database with stores of their own. */
function several(library: Library, driver: string): LocalForage[] {
  const name = `several ${++instances}`;
  return ['one', 'two', 'three'].map((storeName) => fresh(library, { name, storeName, driver }));
}

each('is not be able to access values of other instances', async ({ library, driver }) => {
  const [one, two, three] = several(library, driver) as [LocalForage, LocalForage, LocalForage];
  await one.setItem('key1', 'value1');
  await two.setItem('key2', 'value2');
  await three.setItem('key3', 'value3');
  await same([await one.getItem('key2'), await two.getItem('key1'), await three.keys()], [null, null, ['key3']]);
});

each('retrieves the proper value when using the same key with other instances', async ({ library, driver }) => {
  const all = several(library, driver);
  await Promise.all(all.map((instance, index) => instance.setItem('key', index)));
  await same(await Promise.all(all.map((instance) => instance.getItem('key'))), [0, 1, 2]);
});

each('chains operation on multiple stores', async ({ library, driver }) => {
  const all = several(library, driver);
  const results: unknown[] = [];
  for (const [index, instance] of all.entries()) {
    await instance.setItem('key', `value ${index}`);
    results.push(await instance.getItem('key'));
  }
  await same(results, ['value 0', 'value 1', 'value 2']);
});

each('can create multiple instances of the same store', async ({ library, driver }) => {
  const [name, storeName] = [`same ${++instances}`, 'same'];
  const one = fresh(library, { name, storeName, driver });
  await one.ready();
  await one.setItem('key', 1);
  const two = fresh(library, { name, storeName, driver });
  await same(await two.getItem('key'), 1);
  await two.setItem('key', 2);
  await same(await one.getItem('key'), 2);
});

each('can create multiple instances of the same store and do concurrent operations', async ({ library, driver }) => {
  const [name, storeName] = [`same ${++instances}`, 'same'];
  const all = [1, 2, 3].map(() => fresh(library, { name, storeName, driver }));
  await Promise.all(all.map((instance, index) => instance.setItem(`key ${index}`, index)));
  await same(await Promise.all(all.map((instance) => instance.length())), [3, 3, 3]);
});

each('can create multiple instances of the same store concurrently', async ({ library, driver }) => {
  const [name, storeName] = [`same ${++instances}`, 'same'];
  const all = [1, 2, 3].map(() => fresh(library, { name, storeName, driver }));
  await Promise.all(all.map((instance) => instance.ready()));
  await all[0]?.setItem('key', 'x');
  await same(await Promise.all(all.map((instance) => instance.getItem('key'))), ['x', 'x', 'x']);
});

each('is used according to setDriver preference order', async ({ instance, driver }) => {
  await instance.setDriver(['I am not a driver', driver, instance.WEBSQL]);
  await instance.ready();
  await same(instance.driver(), driver);
});

/** Runs with errors that callbacks throw, which nothing catches; resolves to their messages. */
async function uncaughtIn(run: () => Promise<void>): Promise<string[]> {
  const messages: string[] = [];
  const node = (globalThis as { process?: NodeJS.Process }).process;
  const note = (error: unknown): void => void messages.push((error as Error).message);
  const onEvent = (event: PromiseRejectionEvent): void => {
    event.preventDefault();
    note(event.reason);
  };
  // Elsewhere there is no such listener.
  const others = node?.listeners('unhandledRejection') ?? [];
  if (node === undefined) addEventListener('unhandledrejection', onEvent);
  else node.removeAllListeners('unhandledRejection').on('unhandledRejection', note);
  try {
    await run();
    await new Promise((resolve) => {
      setTimeout(resolve, 10);
    });
  } finally {
    if (node === undefined) removeEventListener('unhandledrejection', onEvent);
    else {
      node.off('unhandledRejection', note);
      for (const other of others) node.on('unhandledRejection', other as NodeJS.UnhandledRejectionListener);
    }
  }
  return messages;
}

for (const [method, args, expected] of [
  ['getItem', ['key'], 'value'],
  ['setItem', ['key', 'other'], 'other'],
  ['clear', [], undefined],
  ['length', [], 1],
  ['removeItem', ['key'], undefined],
  ['key', [0], 'key'],
  ['keys', [], ['key']],
] as [Method, unknown[], unknown][]) {
  each(`when the callback throws an Error: resolves the promise of ${method}()`, async ({ instance }) => {
    await instance.setItem('key', 'value');
    const uncaught = await uncaughtIn(async () => {
      const throwing = (): never => {
        throw new Error('thrown by the callback');
      };
      await same(await methodOf(instance, method)(...args, throwing), expected);
    });
    await same(uncaught, ['thrown by the callback']);
  });
}

for (const method of METHODS.filter((name) => name !== 'iterate')) {
  each(`when ready() gets rejected: rejects ${method}() promise`, async ({ instance }) => {
    await instance.ready();
    instance.ready = () => Promise.reject(new RangeError('not ready'));
    const args = { setItem: ['key', 'value'], getItem: ['key'], removeItem: ['key'], key: [0] }[method as string] ?? [];
    await failsWith(methodOf(instance, method)(...args), 'RangeError');
  });
}

each('creates a new instance and sets the driver', async ({ library, driver }) => {
  const name = `created ${++instances}`;
  const created = library.localforage.createInstance({ ...library.settings, name, driver });
  await created.setItem('a', 1);
  await same([created.driver(), created.config('name'), await created.keys()], [driver, name, ['a']]);
});

// dropInstance. Four stores in two databases.

interface Dropping {
  readonly a1: LocalForage;
  readonly a2: LocalForage;
  readonly b1: LocalForage;
  readonly b2: LocalForage;
  readonly a: string;
  readonly b: string;
}

function dropping(name: string, body: (given: Dropping & { call: Call }) => Promise<void>): void {
  each(`dropInstance: ${name}`, async ({ library, driver, call }) => {
    const [a, b] = [`drop a ${++instances}`, `drop b ${++instances}`];
    const create = (database: string, storeName: string): LocalForage =>
      fresh(library, { name: database, storeName, driver });
    const all = { a1: create(a, 's1'), a2: create(a, 's2'), b1: create(b, 's1'), b2: create(b, 's2') };
    for (const [value, instance] of Object.entries(all)) await instance.setItem('key', value);
    await body({ ...all, a, b, call });
  });
}

const values = ({ a1, a2, b1, b2 }: Dropping): Promise<unknown[]> =>
  Promise.all([a1, a2, b1, b2].map((instance) => instance.getItem('key')));

dropping('drops the current instance without affecting the rest', async (all) => {
  await same(await all.a1.dropInstance(), undefined);
  await same(await values(all), [null, 'a2', 'b1', 'b2']);
});

dropping('can recreate and set values to previously dropped instances', async (all) => {
  await all.a1.dropInstance();
  await all.a1.setItem('key', 'again');
  await same(await values(all), ['again', 'a2', 'b1', 'b2']);
});

dropping('drops an other instance without affecting the rest', async (all) => {
  await all.a1.dropInstance({ name: all.b, storeName: 's2' });
  await same(await values(all), ['a1', 'a2', 'b1', null]);
});

dropping('the dropped instance is completely removed', async (all) => {
  await all.a1.dropInstance({ name: all.a, storeName: 's2' });
  await same([await all.a2.length(), await all.a2.keys(), await all.a1.length()], [0, [], 1]);
});

dropping('resolves when trying to drop a store that does not exit', async (all) => {
  await all.a1.dropInstance({ name: all.a, storeName: 'none' });
  await same(await values(all), ['a1', 'a2', 'b1', 'b2']);
});

dropping('the dropped "DB" can be recreated', async (all) => {
  await all.a1.dropInstance({ name: all.b });
  await all.b2.setItem('key', 'again');
  await same(await values(all), ['a1', 'a2', null, 'again']);
});

dropping('the dropped "DB" is completely removed', async (all) => {
  await all.a1.dropInstance({ name: all.a });
  await same(await values(all), [null, null, 'b1', 'b2']);
});

dropping('resolves when trying to drop a store of a "DB" that does not exit', async (all) => {
  await all.a1.dropInstance({ name: `${all.a} none`, storeName: 's1' });
  await same(await values(all), ['a1', 'a2', 'b1', 'b2']);
});

dropping('resolves when trying to drop a "DB" that does not exist', async (all) => {
  await all.a1.dropInstance({ name: `${all.a} none` });
  await same(await values(all), ['a1', 'a2', 'b1', 'b2']);
});

dropping('drops a "DB" that we previously dropped a store', async (all) => {
  await all.a1.dropInstance({ name: all.a, storeName: 's1' });
  await all.a1.dropInstance({ name: all.a });
  await same(await values(all), [null, null, 'b1', 'b2']);
});

dropping('drops a "DB" after dropping all its stores', async (all) => {
  await all.a1.dropInstance({ name: all.a, storeName: 's1' });
  await all.a1.dropInstance({ name: all.a, storeName: 's2' });
  await all.a1.dropInstance({ name: all.a });
  await same(await values(all), [null, null, 'b1', 'b2']);
});

each(
  'dropInstance: calls back',
  async ({ instance }) => {
    await instance.setItem('key', 1);
    const withCallback = (...args: unknown[]): Promise<unknown> =>
      new Promise((resolve, reject) => {
        methodOf(instance, 'dropInstance')(...args, (error: unknown) =>
          error === null ? resolve('called') : reject(error),
        );
      });
    await same([await withCallback(), await instance.length()], ['called', 0]);
    await same(await withCallback({ name: `drop none ${++instances}` }), 'called');
  },
  byCallback,
);

// Data types.

const nested = { a: [1, { b: [null, 'x'] }], c: { d: { e: true } } };
for (const [name, value] of [
  ['a string', 'Mozilla'],
  ['a number', 4],
  ['a boolean', false],
  ['null', null],
  ['a float', 6.2831],
  ['an array', [2, 'one', true]],
  ['a nested object', nested],
] as const) {
  both(`saves ${name}`, async ({ instance, call }) => {
    await same(await call(instance, 'setItem', 'key', value), value);
    await same(await call(instance, 'getItem', 'key'), value);
  });
}

both('saves undefined as null', async ({ instance, call }) => {
  await same(await call(instance, 'setItem', 'key', undefined), null);
  await same([await call(instance, 'getItem', 'key'), await instance.keys()], [null, ['key']]);
});

each('saves a string like "[object Blob]" [promise]', async ({ instance }) => {
  await instance.setItem('key', '[object Blob]');
  await same(await instance.getItem('key'), '[object Blob]');
});

for (const [name, length] of [
  ['', 300],
  ['odd length ', 301],
] as const) {
  each(`saves ${name}binary (ArrayBuffer) data`, async ({ instance }) => {
    const bytes = Uint8Array.from({ length }, (_, index) => index % 256).buffer;
    await same(await instance.setItem('key', bytes), bytes);
    await same(await instance.getItem('key'), bytes);
  });
}

const blob = new Blob(['<a id="a"><b id="b">hey!</b></a>'], { type: 'text/html' });
/** Blobs are read as browsers do it, which localForage needs. */
it('INDEXEDDB: saves binary (Blob) data', async (library) => {
  const instance = fresh(library, { driver: library.localforage.INDEXEDDB });
  await same(await instance.setItem('key', blob), blob);
  await same(await instance.getItem('key'), blob);
});

it('INDEXEDDB: saves binary (Blob) data, iterate back', async (library) => {
  const instance = fresh(library, { driver: library.localforage.INDEXEDDB });
  await instance.setItem('key', blob);
  await instance.setItem('nested', { blob });
  const seen: unknown[] = [];
  await instance.iterate((value, key) => void seen.push([key, value]));
  await same(seen, [
    ['key', blob],
    ['nested', { blob }],
  ]);
});

it('LOCALSTORAGE: saves binary (Blob) data', async (library) => {
  const instance = fresh(library, { driver: library.localforage.LOCALSTORAGE });
  await instance.setItem('key', blob);
  await same(await instance.getItem('key'), blob);
});

for (const [name, view] of [
  ['an Int8Array', new Int8Array([-65, 0, 0, 0, 0, 0, 0, 7])],
  ['an Uint8Array', new Uint8Array([65, 0, 9, 255])],
  ['an Uint8ClampedArray', new Uint8ClampedArray([0, 255, 127])],
  ['an Int16Array', new Int16Array([-32000, 0, 7])],
  ['an Uint16Array', new Uint16Array([65000, 0, 7])],
  ['an Int32Array', new Int32Array([-2_000_000_000, 7])],
  ['an Uint32Array', new Uint32Array([4_000_000_000, 7])],
  ['a Float32Array', new Float32Array([1.5, -0, Number.NaN])],
  ['a Float64Array', new Float64Array([Math.PI, -1e300])],
] as const) {
  each(`saves ${name}`, async ({ instance }) => {
    await instance.setItem('key', view);
    await same(await instance.getItem('key'), view);
  });
}

// Settings.

it('Config API: returns the default values', async (library) => {
  const instance = library.localforage.createInstance({});
  await same(
    ['description', 'name', 'size', 'storeName', 'version'].map((name) => instance.config(name) as unknown),
    ['', 'localforage', 4980736, 'keyvaluepairs', 1],
  );
});

it('Config API: returns error if API call was already made', async (library) => {
  const instance = fresh(library, { description: 'before' });
  await instance.length();
  const result: unknown = instance.config({ description: 'after' });
  await same(result instanceof Error && /^Can't call config\(\) after localforage/.test(result.message), true);
  await same(instance.config('description'), 'before');
});

it('Config API: sets new values and returns them properly', async (library) => {
  const instance = fresh(library);
  await instance.setDriver(instance.INDEXEDDB);
  const result: unknown = instance.config({
    description: 'The offline datastore for my cool app',
    name: `My Cool App ${++instances}`,
    storeName: 'myStoreName',
    version: 2,
  });
  await instance.ready();
  await same(
    [result, instance.config('storeName'), instance.config('version'), instance.config('description')],
    [true, 'myStoreName', 2, 'The offline datastore for my cool app'],
  );
});

it('Config API: sets new driver using preference order', async (library) => {
  const instance = fresh(library);
  await instance.setDriver(instance.INDEXEDDB);
  const result: unknown = instance.config({ driver: [instance.LOCALSTORAGE, instance.INDEXEDDB] });
  await (result as Promise<void>);
  await instance.ready();
  await same(instance.driver(), instance.LOCALSTORAGE);
});

it('Config API: it does not set an unsupported driver', async (library) => {
  const instance = fresh(library);
  await instance.setDriver(instance.INDEXEDDB);
  const result: unknown = instance.config({ driver: 'I am a not supported driver' });
  await same(await messageOf(result as Promise<void>), NONE);
  await same(instance.driver(), instance.INDEXEDDB);
});

it('Config API: it does not set an unsupported driver using preference order', async (library) => {
  const instance = fresh(library);
  await instance.setDriver(instance.INDEXEDDB);
  const result: unknown = instance.config({ driver: ['I am a not supported driver', 'I am a an other'] });
  await same(await messageOf(result as Promise<void>), NONE);
  await same(instance.driver(), instance.INDEXEDDB);
});

it('Config API: converts bad config values across drivers', async (library) => {
  const instance = fresh(library);
  await instance.setDriver(instance.INDEXEDDB);
  instance.config({ storeName: 'my store-name.x' });
  await same(instance.config('storeName'), 'my_store_name_x');
  await instance.setItem('a', 1);
  await same(await instance.getItem('a'), 1);
});

it('Config API: uses the config values', async (library) => {
  const name = `My Cool App ${++instances}`;
  const one = fresh(library);
  await one.setDriver(one.INDEXEDDB);
  one.config({ name, storeName: 'myStore' });
  await one.setItem('some key', 'some value');
  await same(await fresh(library, { name, storeName: 'myStore' }).getItem('some key'), 'some value');
  await same(await fresh(library, { name, storeName: 'other' }).getItem('some key'), null);
});

it("Config API: returns all values when config isn't passed arguments", async (library) => {
  const instance = fresh(library, { name: 'x' });
  await same([typeof instance.config(), instance.config().name], ['object', 'x']);
});

it('Config API: maintains config values across setDriver calls', async (library) => {
  const instance = fresh(library);
  await instance.setDriver(instance.INDEXEDDB);
  instance.config({ name: 'Mega Mozilla Dino' });
  await instance.setDriver(instance.LOCALSTORAGE);
  await instance.length();
  await same(instance.config('name'), 'Mega Mozilla Dino');
});

it('Config API: returns error if database version is not a number', async (library) => {
  const instance = fresh(library);
  await instance.setDriver(instance.INDEXEDDB);
  const result: unknown = instance.config({ version: '2.0' as never });
  await same([result instanceof Error, (result as Error).message], [true, 'Database version must be a number.']);
});

// Drivers of the program.

const lacking = (name: string): LocalForageDriver =>
  ({ _driver: name, _initStorage: () => Promise.resolve(), getItem: () => Promise.resolve() }) as never;
const nameless = { ...stub(''), _driver: '' } as LocalForageDriver;

function define({ localforage }: Library, driver: LocalForageDriver, isCallback: boolean): Promise<void> {
  if (!isCallback) return localforage.defineDriver(driver);
  return new Promise((resolve, reject) => {
    localforage.defineDriver(driver, resolve as () => void, reject).catch(() => undefined);
  });
}

for (const [kind, isCallback] of [
  ['', true],
  [' [promise]', false],
] as const) {
  it(`Custom Drivers: fails to define a no-name custom driver${kind}`, async (library) =>
    same(await messageOf(define(library, nameless, isCallback)), NOT_COMPLIANT));
  it(`Custom Drivers: fails to define a custom driver with missing methods${kind}`, async (library) =>
    same(await messageOf(define(library, lacking('lacking'), isCallback)), NOT_COMPLIANT));
  it(`Custom Drivers: defines a compliant custom driver${kind}`, async (library) => {
    await define(library, stub(`compliant${kind}`), isCallback);
    await same(library.localforage.supports(`compliant${kind}`), true);
  });
  it(`Custom Drivers: sets a custom driver${kind}`, async (library) => {
    await define(library, stub(`set${kind}`), isCallback);
    const instance = fresh(library);
    await (isCallback
      ? new Promise<void>((resolve) => void instance.setDriver(`set${kind}`, resolve))
      : instance.setDriver(`set${kind}`));
    await same(instance.driver(), `set${kind}`);
  });
  it(`Custom Drivers: sets and uses a custom driver${kind}`, async (library) => {
    await define(library, stub(`used${kind}`), isCallback);
    const instance = fresh(library);
    await instance.setDriver(`used${kind}`);
    const call = isCallback ? byCallback : byPromise;
    await same(await call(instance, 'setItem', 'testCallback', 'value'), 'value');
    await same([await call(instance, 'getItem', 'testCallback'), await instance.length()], ['value', 1]);
  });
}

it("Custom Drivers: defines a driver synchronously when it doesn't have _supports()", async ({ localforage }) => {
  void localforage.defineDriver(stub('synchronous'));
  await same(localforage.supports('synchronous'), true);
});

it('Custom Drivers: defines a driver synchronously when it has boolean _supports()', async ({ localforage }) => {
  void localforage.defineDriver(stub('boolean', { _support: true }));
  void localforage.defineDriver(stub('unsupported', { _support: false }));
  await same([localforage.supports('boolean'), localforage.supports('unsupported')], [true, false]);
});

it('Custom Drivers: defines a driver asynchronously when _supports() returns a Promise<boolean>', async ({
  localforage,
}) => {
  const defined = localforage.defineDriver(stub('asynchronous', { _support: () => Promise.resolve(true) }));
  const before = localforage.supports('asynchronous');
  await defined;
  await same([before, localforage.supports('asynchronous')], [false, true]);
});

it('Custom Drivers: when dropInstance is not defined: rejects when it is used', async (library) => {
  const instance = fresh(library);
  await instance.defineDriver(stub('without drop'));
  await instance.setDriver('without drop');
  await same(await messageOf(instance.dropInstance()), 'Method dropInstance is not implemented by the current driver');
});

it('Custom Drivers: when dropInstance is defined: is does not reject', async (library) => {
  const instance = fresh(library);
  await instance.defineDriver(stub('with drop', { dropInstance: () => Promise.resolve() }));
  await instance.setDriver('with drop');
  await same(await instance.dropInstance(), undefined);
});

// Changing drivers.

for (const [kind, isCallback] of [
  ['callback', true],
  ['promise', false],
] as const) {
  const set = (instance: LocalForage, driver: string | string[]): Promise<void> =>
    isCallback
      ? new Promise((resolve, reject) => {
          instance.setDriver(driver, resolve, reject).catch(() => undefined);
        })
      : instance.setDriver(driver);
  it(`Driver API: can change to localStorage from INDEXEDDB [${kind}]`, async (library) => {
    const instance = fresh(library);
    await instance.setItem('a', 'in IndexedDB');
    await set(instance, instance.LOCALSTORAGE);
    await same([instance.driver(), await instance.getItem('a')], [instance.LOCALSTORAGE, null]);
    await instance.setItem('a', 'in localStorage');
    await set(instance, instance.INDEXEDDB);
    await same([instance.driver(), await instance.getItem('a')], [instance.INDEXEDDB, 'in IndexedDB']);
  });
  for (const name of ['INDEXEDDB', 'LOCALSTORAGE'] as const) {
    it(`Driver API: can set already active ${name} [${kind}]`, async (library) => {
      const instance = fresh(library);
      await set(instance, instance[name]);
      await instance.setItem('a', 1);
      await set(instance, instance[name]);
      await same([instance.driver(), await instance.getItem('a')], [instance[name], 1]);
    });
  }
  it(`Driver API: can't use unsupported WebSQL [${kind}]`, async (library) => {
    const instance = fresh(library);
    await instance.ready();
    await same(instance.supports(instance.WEBSQL), false);
    await same(await messageOf(set(instance, instance.WEBSQL)), NONE);
    await same(instance.driver(), instance.INDEXEDDB);
  });
  it(`When No Drivers Are Available: fails to setDriver using array parameter [${kind}]`, async (library) =>
    same(await messageOf(set(fresh(library), ['none', 'neither'])), NONE));
  it(`When No Drivers Are Available: fails to load localForage [${kind}]`, async (library) => {
    const instance = fresh(library, { driver: ['none'] });
    const error = isCallback
      ? await new Promise<Error>((resolve) => {
          instance.ready(resolve).catch(() => undefined);
        })
      : await instance.ready().catch((reason: unknown) => reason as Error);
    await same([(error as Error).message, instance.driver()], [NONE, null]);
    await same(await messageOf(instance.getItem('a')), NONE);
  });
  it(`When Driver Fails to Initialize: fails to setDriver [${kind}]`, async (library) => {
    const failing = `fails ${kind}`;
    await library.localforage.defineDriver(stub(failing, { _initStorage: () => Promise.reject(new Error('no')) }));
    const instance = fresh(library, { driver: failing });
    // The driver exists, so the choice succeeds, and using it does not.
    await set(instance, failing);
    await same(await messageOf(instance.ready()), NONE);
  });
}

// Beyond localForage's own cases.

it('what null is in iterate and in values of IndexedDB', async (library) => {
  const instance = fresh(library, { driver: library.localforage.INDEXEDDB });
  await instance.setItem('a', null);
  await instance.setItem('b', { inner: null });
  const seen: unknown[] = [];
  await instance.iterate((value, key, number) => void seen.push([value, key, number]));
  await same(seen, [
    [undefined, 'a', 1],
    [{ inner: null }, 'b', 2],
  ]);
});

it('keys are in the order of IndexedDB', async (library) => {
  const instance = fresh(library, { driver: library.localforage.INDEXEDDB });
  const keys = ['', '0', 'A', 'a', 'a\u0000', 'ab', 'b', '\u00e4', '\u{1f333}', '\uffff'];
  await Promise.all([...keys].reverse().map((key) => instance.setItem(key, key)));
  await same(await instance.keys(), keys);
  await same(await Promise.all(keys.map((_, index) => instance.key(index))), keys);
});

it('a value that cannot be stored', async (library) => {
  const instance = fresh(library, { driver: library.localforage.INDEXEDDB });
  await failsWith(
    instance.setItem('a', () => 1),
    'DataCloneError',
  );
  await failsWith(byCallback(instance, 'setItem', 'a', { inner: Symbol('x') }), 'DataCloneError');
  await same(await instance.length(), 0);
});

it('values that JSON does not have', async (library) => {
  const instance = fresh(library, { driver: library.localforage.INDEXEDDB });
  const value = { date: new Date(5), map: new Map([[1n, new Set(['x'])]]), nan: Number.NaN, re: /x/g };
  await instance.setItem('a', value);
  await same(await instance.getItem('a'), value);
});

it('what another store sets after the database was dropped is kept', async (library) => {
  const [name, driver] = ['dropped at once', library.localforage.INDEXEDDB];
  const dropping = fresh(library, { driver, name, storeName: 'dropping' });
  const other = fresh(library, { driver, name, storeName: 'other' });
  for (const store of [dropping, other]) await store.setItem('old', 1);
  await Promise.all([dropping.dropInstance({ name }), other.setItem('new', 2)]);
  await same(await other.keys(), ['new']);
});
