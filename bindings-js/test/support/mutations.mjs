// What the runners of deliberate mistakes have in common: bundles of tests in which one source file is another.
import { spawn } from 'node:child_process';
import process from 'node:process';
import { build } from 'esbuild';

/** The source with a mistake in it. `from` has to be there once: elsewhere the mistake would be another one. */
export function replaceOnce(source, from, to, name) {
  const at = source.indexOf(from);
  if (at < 0) throw new Error(`"${name}" no longer finds its original: ${from}`);
  if (source.includes(from, at + 1)) throw new Error(`"${name}" finds its original more than once: ${from}`);
  return source.slice(0, at) + to + source.slice(at + from.length);
}

/** Bundles files for Node, with `contents` in place of what is at `path`. */
export async function bundleWith({ files, directory, path, contents, plugins = [] }) {
  await build({
    entryPoints: files, outdir: directory, outExtension: { '.js': '.mjs' }, bundle: true, platform: 'node', format: 'esm', logLevel: 'error', sourcemap: false,
    plugins: [...plugins, {
      name: 'mutate',
      setup: ({ onLoad }) => onLoad({ filter: /\.ts$/ }, (args) => (args.path === path ? { contents, loader: 'ts' } : undefined)),
    }],
  });
}

/** Runs a bundle up to the first test that fails; resolves to its name, or to undefined. One that takes longer than `limit` hangs. */
export function firstFailure(args, { env = {}, limit }) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    let [rest, errors, failure] = ['', '', undefined];
    const timer = setTimeout(() => end('hangs'), limit);
    const end = (what) => {
      failure ??= what;
      child.kill('SIGKILL');
    };
    child.stdout.setEncoding('utf8').on('data', (text) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop();
      // Tests that are to be done may fail.
      const failed = lines.find((line) => /^ *not ok /.test(line) && !/ # (TODO|SKIP)\b/i.test(line));
      if (failed !== undefined) end(failed.trim().replace(/^not ok \d+ - /, ''));
    });
    child.stderr.setEncoding('utf8').on('data', (text) => { errors = (errors + text).slice(-2000); });
    child.on('error', reject);
    child.on('close', (status) => {
      clearTimeout(timer);
      resolve(failure ?? (status === 0 ? undefined : `ends with ${status}: ${errors.trim().split('\n').at(-1)}`));
    });
  });
}
