// A page that counts its visits, and shows the number as it changes. After an edit Vite runs this module
// again, in the same process: it opens the database a second time, and nobody closes the first handle.
// Both work. The pages that are open still follow the database through the first one.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { keyCodecs, open } from 'mangrove-kv';
import { liveValue } from 'mangrove-kv/live';

const HEADING = 'Visits';

const db = await open(process.env['DATABASE'] ?? 'example-vite-ssr');
const counts = db.collection<string, number>('counts', { key: keyCodecs.string });

export async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (request.url === '/visits') follow(response);
  else response.setHeader('content-type', 'text/html').end(await render());
}

async function render(): Promise<string> {
  const visits = await counts.update('home', (old = 0) => old + 1);
  return `<!doctype html>
<script type="module" src="/@vite/client"></script>
<h1>${HEADING}: <output>${visits}</output></h1>
<script>
  new EventSource('/visits').onmessage = ({ data }) => { document.querySelector('output').textContent = data; };
</script>`;
}

/** Sends the number, and each other one from then on. */
function follow(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const visits = liveValue(counts, (from) => from.get('home'));
  const stop = visits.subscribe(() => {
    const { status, value = 0 } = visits.getSnapshot();
    if (status === 'ready') response.write(`data: ${value}\n\n`);
  });
  response.on('close', stop);
}
