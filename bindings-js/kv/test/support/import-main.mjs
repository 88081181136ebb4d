// Imports the entry that its argument names and reports what that changed; then reads standard
// input to its end. Runs in a separate process.
import * as fs from 'node:fs';

const { process } = globalThis;

/** All properties of the global object. */
function globals() {
  return new Map(Reflect.ownKeys(globalThis).map((name) => [name, Object.getOwnPropertyDescriptor(globalThis, name)]));
}

/** Node replaces a getter by its value on first use. */
function isSame(before, after) {
  if (before === undefined || after === undefined) return before === after;
  if (before.get === after.get && 'get' in before) return true;
  const value = 'get' in before ? before.get.call(globalThis) : before.value;
  return Object.is(value, after.value);
}

function listeners() {
  return process
    .eventNames()
    .map((name) => `${String(name)}: ${process.listenerCount(name)}`)
    .sort();
}

function resources() {
  // File reads of the module loader do not count.
  return (process.getActiveResourcesInfo?.() ?? []).filter((name) => !/^(?:FS|Close)Req/.test(name)).sort();
}

// Changes by the package of the base class do not count.
if (process.argv[2].endsWith('/level')) await import('abstract-level');

const timers = [];
for (const name of ['setTimeout', 'setInterval', 'setImmediate']) {
  const own = globalThis[name];
  globalThis[name] = (...args) => {
    timers.push(name);
    return own(...args);
  };
}

const before = { globals: globals(), listeners: listeners(), resources: resources() };
await import(process.argv[2]);
const after = { globals: globals(), listeners: listeners(), resources: resources() };

const names = new Set([...before.globals.keys(), ...after.globals.keys()]);
fs.writeSync(1, 'imported\n');
fs.writeSync(
  1,
  JSON.stringify({
    timers,
    globals: [...names].filter((name) => !isSame(before.globals.get(name), after.globals.get(name))).map(String),
    listeners: after.listeners.filter((each) => !before.listeners.includes(each)),
    resources: after.resources.filter((each) => !before.resources.includes(each)),
    input: fs.readFileSync(0, 'utf8'),
  }),
);
