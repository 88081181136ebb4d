// A development server with Vite's server-side rendering: `server.ts <directory of the module> <port>`.
// Edit page.ts while it runs.
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { createServer } from 'vite';

const [root = fileURLToPath(new URL('.', import.meta.url)), port = '8080'] = process.argv.slice(2);

const server = createHttpServer();
const vite = await createServer({
  root,
  configFile: false,
  appType: 'custom',
  server: { middlewareMode: true, hmr: { server } },
});
server.on('request', (request, response) => {
  vite.middlewares(request, response, async () => {
    try {
      // The module as it is now. Vite runs it again if it has changed.
      const page = (await vite.ssrLoadModule('/page.ts')) as typeof import('./page.ts');
      await page.answer(request, response);
    } catch (error) {
      response.writeHead(500).end((error as Error).message);
    }
  });
});
// Before Vite has seen the module, it would not notice an edit.
if (!vite.watcher.getWatched()[vite.config.root]?.includes('page.ts')) await once(vite.watcher, 'ready');
server.listen(Number(port), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
});
