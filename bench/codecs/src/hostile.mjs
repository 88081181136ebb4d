// Decodes bytes that no encoder wrote. Each codec runs in a separate process, which can be killed
// if it hangs.
import { fork } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const HANG_MS = 5000;
/** After this many hangs or deaths a codec gets no more input. */
const MOST_DEATHS = 10;

/** Decodes inputs from number `from` on, until the end or until one kills the process. */
function run(id, from, count, progress) {
  return new Promise((done) => {
    const child = fork(
      join(import.meta.dirname, 'hostile-child.mjs'),
      [id, String(from), String(count), progress, ...process.argv.slice(2)],
      {
        execArgv: ['--max-old-space-size=1024', '--disable-warning=ExperimentalWarning'],
        stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      },
    );
    const at = () => readFileSync(progress).readInt32LE(0);
    let answer;
    let last = at();
    let since = performance.now();
    let isHanging = false;
    const watch = setInterval(() => {
      const now = at();
      if (now !== last) {
        last = now;
        since = performance.now();
      } else if (performance.now() - since > HANG_MS) {
        isHanging = true;
        child.kill('SIGKILL');
      }
    }, 250);
    child.on('message', (message) => (answer = message));
    child.on('exit', () => {
      clearInterval(watch);
      done({ answer, isHanging, at: at() });
    });
  });
}

const EMPTY = {
  values: 0,
  errors: 0,
  hangs: 0,
  deaths: 0,
  slowest: { ms: 0 },
  largest: { bytes: 0 },
  globals: [],
  results: 0,
  named: {},
};

/** Each message of the child has its totals so far; inputs that killed a child are counted here. */
export async function measureHostile(ids, { count, say }) {
  const all = {};
  for (const id of ids) {
    say(`hostile bytes: ${id}`);
    const directory = mkdtempSync(join(tmpdir(), 'mangrove-bench-'));
    const progress = join(directory, 'progress');
    const total = structuredClone(EMPTY);
    try {
      for (let from = 0; from >= 0 && total.hangs + total.deaths < MOST_DEATHS; ) {
        writeFileSync(progress, Buffer.alloc(4096));
        const { answer, isHanging, at } = await run(id, from, count, progress);
        merge(total, answer ?? partial(progress));
        if (answer !== undefined) break;
        if (isHanging) total.hangs++;
        else total.deaths++;
        const name = partial(progress)?.current;
        if (name !== undefined && !/^\d+$/.test(name)) total.named[name] = isHanging ? 'hangs' : 'ends the process';
        from = at + 1;
      }
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
    all[id] = total;
  }
  return all;
}

function partial(progress) {
  const text = readFileSync(progress).subarray(4).toString().replace(/\0.*$/s, '');
  return text === '' ? undefined : JSON.parse(text);
}

function merge(total, part) {
  if (part === undefined) return;
  for (const key of ['values', 'errors', 'results']) total[key] += part[key];
  if (part.slowest.ms > total.slowest.ms) total.slowest = part.slowest;
  if (part.largest.bytes > total.largest.bytes) total.largest = part.largest;
  total.globals = [...new Set([...total.globals, ...part.globals])];
  Object.assign(total.named, part.named);
}
