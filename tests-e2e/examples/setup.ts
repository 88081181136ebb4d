import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** Builds the example pages, as a user would. */
export default function setup(): void {
  const cwd = fileURLToPath(new URL('../../docs/examples', import.meta.url));
  execFileSync('npm', ['run', '--silent', 'build'], { cwd, stdio: ['ignore', 'ignore', 'inherit'] });
}
