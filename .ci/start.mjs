// Installs what is missing, builds the package, and serves the demo: the development build, or with
// `--release` the published one.
import { run } from './tools.mjs';

const isRelease = process.argv.includes('--release');
try {
  run('node', ['.ci/setup.mjs']);
  run(...(isRelease ? ['npm', ['run', '--silent', 'build:package']] : ['node', ['bindings-js/build/dev.mjs']]));
  run('npm', ['run', '--silent', 'dev', '--workspace', 'demo-web']);
} catch (error) {
  // What failed has already said why.
  process.exitCode = error.status ?? 1;
}
