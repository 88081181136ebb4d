// What a server renders of a database there, and a page that takes it over: nothing differs at first, then it is live.
import { open } from 'mangrove-kv';
import { liveQuery, preload } from 'mangrove-kv/live';
import { HARNESS_URL } from '../browser.ts';
import { RANGE } from '../harness/frameworks/hydrated/page.ts';
import { serve } from '../harness/frameworks/hydrated/server.ts';
import { expect, test } from '../persistent.ts';

const NAMES = ['angular', 'preact', 'react', 'react-suspense', 'solid', 'svelte', 'vue'] as const;
const ENTRIES = [
  ['a1', 1],
  ['a2', 2],
  ['b1', 3],
] as const;

for (const name of NAMES) {
  test(`a server renders with ${name} what was preloaded, and nothing else`, async () => {
    const db = await open('server', { storage: 'memory' });
    const source = db.collection<string, number>('notes');
    await source.setMany(ENTRIES);
    if (name === 'react-suspense') {
      // The rows come after the beginning of the stream, which goes on when they are there.
      let release = (): void => undefined;
      const released = new Promise<void>((resolve) => {
        release = resolve;
      });
      const slow = {
        entries: (range: object) => ({ toArray: () => released.then(() => source.entries(range).toArray()) }),
        watch: (options: object) => source.watch(options),
      } as unknown as typeof source;
      const { html } = await serve(name, { source: slow, initial: undefined }, release);
      expect(html).toContain('waiting');
      expect(html).toContain('ready: a1=1 a2=2');
    } else {
      expect((await serve(name, { source, initial: undefined })).html).toContain('loading: ');
      await preload(liveQuery(source, RANGE));
      expect((await serve(name, { source, initial: undefined })).html).toContain('ready: a1=1 a2=2');
    }
    await db.close();
  });

  for (const isMirrored of [false, true]) {
    test(`a page takes over what a server has rendered with ${name}, ${isMirrored ? 'of what it has mirrored' : 'and reads then'}`, async ({
      profile,
    }) => {
      const db = await open('server', { storage: 'memory' });
      const source = db.collection<string, number>('notes');
      await source.setMany(ENTRIES);
      const { entries: initial } = await preload(liveQuery(source, RANGE));
      const { html, scripts } = await serve(name, { source, initial });
      await db.close();

      const page = await (await profile.launch()).newPage();
      const messages: string[] = [];
      page.on('pageerror', (error) => messages.push(String(error)));
      // The 404 is the browser's request for an icon that does not exist.
      page.on(
        'console',
        (message) =>
          ['error', 'warning'].includes(message.type()) &&
          !message.text().includes('404') &&
          messages.push(message.text()),
      );
      await page.goto(HARNESS_URL);
      // The page has an entry that the server did not have yet, and another value of one that it had.
      const entries = [
        ['a0', 0],
        ['a1', 7],
        ['a2', 2],
      ] as const;
      const { served, first, seen, shown, isSame } = await page.evaluate((options) => window.hydratePage(options), {
        name,
        html,
        scripts,
        initial,
        entries,
        isMirrored,
      });
      expect(served).toMatch(/^p ready: a1=1 a2=2/);
      expect(first).toBe('ready: a1=1 a2=2');
      expect(isSame).toBe(true);
      expect(seen.filter((text) => text.includes('loading'))).toEqual([]);
      expect(shown).toMatch(/^p ready: a0=0 a1=7 a2=2 a9=9/);
      // The parts of the page that show the same in another way.
      for (const part of shown.split(',').filter((part) => /^[bu] /.test(part)))
        expect(part.slice(2)).toBe('ready: a0=0 a1=7 a2=2 a9=9');
      const rows = shown.split(',').filter((part) => part.startsWith('li '));
      if (rows.length > 0) expect(rows).toEqual(['li a0=0', 'li a1=7', 'li a2=2', 'li a9=9']);
      expect(messages).toEqual([]);
    });
  }
}
