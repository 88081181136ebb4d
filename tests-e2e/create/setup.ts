// Makes a project of each template as a user would: `npm create`, `npm install`, `npm run check`, `npm run build`.
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { pack } from '../../.ci/pack.mjs';
import { TEMPLATES } from './projects.ts';
import { startRegistry } from './registry.ts';

const run = promisify(execFile);
const NAMES = ['mangrove-kv', '@mangrove-kv/react', '@mangrove-kv/vue', '@mangrove-kv/svelte', 'create-mangrove-kv'];

/** Fails unless a file of a project is the one that was packed. */
async function same(file: string, packed: string): Promise<void> {
  const own = await readFile(new URL(`../../bindings-js/${packed}`, import.meta.url));
  if (!own.equals(await readFile(file))) throw new Error(`${file} is not bindings-js/${packed}`);
}

export default async function setup(): Promise<() => Promise<void>> {
  const directory = await mkdtemp(join(tmpdir(), 'mangrove-create-'));
  const remove = () => rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  try {
    const packed = pack(join(directory, 'tarballs'), NAMES);
    await using registry = await startRegistry([...packed.values()].map(({ tarball }) => tarball));
    // Without the settings that this process has from the npm that started it.
    const inherited = Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name));
    const env = {
      ...Object.fromEntries(inherited),
      npm_config_registry: registry.url,
      npm_config_audit: 'false',
      npm_config_fund: 'false',
    };
    const npm = (cwd: string, args: readonly string[], more = {}) =>
      run('npm', args, { cwd, env: { ...env, ...more }, maxBuffer: 1e8 });
    // npm keeps what `npm create` ran last under its name and version, which do not change with the sources.
    const own = { npm_config_cache: join(directory, 'cache') };
    for (const template of TEMPLATES) {
      const started = performance.now();
      await npm(directory, ['create', '--yes', 'mangrove-kv', template, '--', '--template', template], own);
      const project = join(directory, template);
      await npm(project, ['install']);
      // No cache has given an older build of the same version.
      await same(join(project, 'node_modules/mangrove-kv/dist/index.js'), 'kv/dist/index.js');
      await same(join(project, 'src/todos.ts'), `create/dist/templates/${template}/src/todos.ts`);
      await npm(project, ['run', 'check']);
      if (template !== 'node') await npm(project, ['run', 'build']);
      process.stdout.write(`${template}: made in ${((performance.now() - started) / 1000).toFixed(1)} s\n`);
    }
    for (const name of NAMES) if (!registry.asked.has(name)) throw new Error(`nothing was asked of ${name}`);
    process.env['MANGROVE_PROJECTS'] = directory;
    return remove;
  } catch (error) {
    await remove();
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    process.stderr.write(stdout + stderr);
    throw error;
  }
}
