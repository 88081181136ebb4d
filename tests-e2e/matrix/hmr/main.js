import { open } from 'mangrove-kv';

const opening = open('hmr');
if (import.meta.hot) {
  import.meta.hot.accept();
  // Vite awaits this before it runs the new version of this file.
  import.meta.hot.dispose(async () => (await opening).close());
}

const db = await opening;
await db.set('runs', ((await db.get('runs')) ?? 0) + 1);
globalThis.report = { version: 1, runs: await db.get('runs') };
