// The guide's hook that opens a database in an effect, in React's StrictMode, which runs effects twice.
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@playwright/test';
import { build } from 'esbuild';
import { serve } from '../http.ts';

const GUIDE = new URL('../../docs/GUIDE.md', import.meta.url);
const DIST = fileURLToPath(new URL('../../bindings-js/kv/dist', import.meta.url));

/** Counts the effects that were given a database, in the database. */
const APP = `
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';

function Page() {
  const db = useDatabase('strict');
  const [text, setText] = useState('waiting');
  useEffect(() => {
    db?.update('effects', (count) => (count as number ?? 0) + 1).then((count) => setText(\`\${count}\`), (error) => setText(String(error)));
  }, [db]);
  return <p>{text}</p>;
}

const root = createRoot(document.body.appendChild(document.createElement('main')));
root.render(<StrictMode><Page /></StrictMode>);
Object.assign(globalThis, { leave: () => root.unmount() });
`;

test("the guide's hook works in StrictMode, and closes what it opened", async ({ page }) => {
  const blocks = [...(await readFile(GUIDE, 'utf8')).matchAll(/^```tsx\n([^]*?)^```$/gm)].map(([, code = '']) => code);
  const hook = blocks.find((code) => code.includes('function useDatabase'));
  const directory = await mkdtemp(join(tmpdir(), 'mangrove-react-'));
  try {
    await cp(DIST, directory, { recursive: true });
    await build({
      stdin: {
        contents: `${hook}${APP}`,
        loader: 'tsx',
        resolveDir: fileURLToPath(new URL('..', import.meta.url)),
        sourcefile: 'app.tsx',
      },
      outfile: join(directory, 'app.js'),
      bundle: true,
      format: 'esm',
      jsx: 'automatic',
      jsxDev: true,
      define: { 'process.env.NODE_ENV': '"development"' },
      logLevel: 'error',
    });
    await writeFile(
      join(directory, 'index.html'),
      '<!doctype html><link rel="icon" href="data:,"><body></body><script type="module" src="app.js"></script>',
    );
    await using server = await serve(directory);
    const errors: string[] = [];
    page.on('pageerror', ({ message }) => errors.push(message));
    await page.goto(server.url);
    await expect(page.locator('p')).toHaveText('1');
    await expect.poll(() => page.workers().length).toBe(1);
    await page.evaluate(() => (globalThis as unknown as { leave(): void }).leave());
    await expect.poll(() => page.workers().length).toBe(0);
    await page.reload();
    await expect(page.locator('p')).toHaveText('2');
    expect(errors).toEqual([]);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
