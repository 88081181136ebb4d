// What the runners of deliberate mistakes have in common: bundles of tests in which one source file is another.
import { spawn } from 'node:child_process';
import process from 'node:process';
import { build } from 'esbuild';

const TOKEN = /[\w$#]+|[^\s\w$#]/g;
const isWord = (token) => /^[\w$#]/.test(token);

/** Finds code whatever its line breaks, indentation and trailing commas: a formatter changes these. */
function patternOf(code) {
  const tokens = code.match(TOKEN);
  const between = (token, before) => {
    if (before === undefined) return '';
    if (/[)\]}]/.test(token)) return ',?\\s*';
    return isWord(token) && isWord(before) ? '\\s+' : '\\s*';
  };
  return new RegExp(
    tokens
      .map((token, at) => `${between(token, tokens[at - 1])}${token.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')}`)
      .join(''),
    'g',
  );
}

/** The source with a mistake in it. `from`, code or an expression, has to be there once: elsewhere the mistake would be another one. */
export function replaceOnce(source, from, to, name) {
  const pattern = typeof from === 'string' ? patternOf(from) : new RegExp(from, `${from.flags}g`);
  const found = source.match(pattern) ?? [];
  if (found.length === 0) throw new Error(`"${name}" no longer finds its original: ${from}`);
  if (found.length > 1) throw new Error(`"${name}" finds its original more than once: ${from}`);
  return source.replace(pattern, typeof from === 'string' ? () => to : to);
}

/** Bundles files for Node, with `contents` in place of what is at `path`. */
export async function bundleWith({ files, directory, path, contents, plugins = [] }) {
  await build({
    entryPoints: files,
    outdir: directory,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    platform: 'node',
    format: 'esm',
    logLevel: 'error',
    sourcemap: false,
    plugins: [
      ...plugins,
      {
        name: 'mutate',
        setup: ({ onLoad }) =>
          onLoad({ filter: /\.ts$/ }, (args) => (args.path === path ? { contents, loader: 'ts' } : undefined)),
      },
    ],
  });
}

/** Runs tests up to the first one that fails; resolves to its name and to those that passed. What takes longer than `limit` hangs. */
export function runTests(args, { env = {}, limit }) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--test-reporter', 'tap', ...args], {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const passed = [];
    let [rest, errors, failure] = ['', '', undefined];
    const timer = setTimeout(() => end('hangs'), limit);
    const end = (what) => {
      failure ??= what;
      child.kill('SIGKILL');
    };
    child.stdout.setEncoding('utf8').on('data', (text) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        const [, no, name] = /^ *(not )?ok \d+ - (.*)$/.exec(line) ?? [];
        // Tests that are to be done may fail.
        if (name === undefined || / # (TODO|SKIP)\b/i.test(name)) continue;
        if (no === undefined) passed.push(name);
        else end(name);
      }
    });
    child.stderr.setEncoding('utf8').on('data', (text) => {
      errors = (errors + text).slice(-2000);
    });
    child.on('error', reject);
    child.on('close', (status) => {
      clearTimeout(timer);
      resolve({
        failure: failure ?? (status === 0 ? undefined : `ends with ${status}: ${errors.trim().split('\n').at(-1)}`),
        passed,
      });
    });
  });
}
