// The functions where Angular renders on a server. `tests-e2e` has them in a browser.
import '@angular/compiler';
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import {
  Component,
  InjectionToken,
  Injector,
  Input,
  inject,
  provideZonelessChangeDetection,
  signal,
} from '@angular/core';
import type { Type } from '@angular/core';
import { bootstrapApplication } from '@angular/platform-browser';
import { provideServerRendering, renderApplication } from '@angular/platform-server';
import { transform } from 'esbuild';
import type { Key } from 'mangrove-kv';
import { liveQuery, mirror, preload } from 'mangrove-kv/live';
import type { LiveSource } from 'mangrove-kv/live';
import { injectLiveQuery, injectLiveWindow } from '@mangrove-kv/angular';
import { counted } from '../../../kv/test/support/counted.ts';
import { guideBlock, withMemory } from '../../../kv/test/support/kit.ts';

interface Asked {
  readonly source: unknown;
  readonly range: unknown;
}

const ASKED = new InjectionToken<Asked>('asked');

/** Renders a component as a server does: what is in the page's body, without comments and attributes of Angular. */
async function render(component: Type<unknown>, asked: Asked): Promise<string> {
  const providers = [provideServerRendering(), provideZonelessChangeDetection(), { provide: ASKED, useValue: asked }];
  const page = await renderApplication((context) => bootstrapApplication(component, { providers }, context), {
    document: '<html><head></head><body><app-root></app-root></body></html>',
  });
  const body = /<app-root[^>]*>([^]*)<\/app-root>/.exec(page)?.[1] ?? '';
  return body
    .replace(/<!--[^]*?-->/g, '')
    .replace(/>\s+/g, '>')
    .replace(/\s+</g, '<');
}

class ListComponent {
  readonly #asked = inject(ASKED);
  readonly #source = this.#asked.source as LiveSource<Key, number>;
  readonly #range = this.#asked.range as object;
  readonly #query = injectLiveQuery(this.#source, this.#range);
  readonly #window = injectLiveWindow(this.#source, this.#range);

  get text(): string {
    return [this.#query, this.#window]
      .map(({ status, entries, error }) => {
        const keys = entries().map(([key]) => String(key));
        return `${status()} ${keys.join()}${(error() as { code?: string } | undefined)?.code ?? ''}`;
      })
      .join('; ');
  }
}
Component({ selector: 'app-root', template: '<p>{{ text }}</p>' })(ListComponent);

test('on a server nothing is read, and what is invalid is a result', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.set('a', 1);
    const source = counted(db);
    const draw = (given: unknown, range: unknown = {}): Promise<string> =>
      render(ListComponent, { source: given, range });
    assert.equal(await draw(source, { prefix: 'a' }), '<p>loading ; loading</p>');
    assert.equal(await draw(signal(source), () => ({ prefix: 'a' })), '<p>loading ; loading</p>');
    assert.equal(await draw(undefined), '<p>loading ; loading</p>');
    const failed = '<p>failed KV_INVALID_ARGUMENT; failed KV_INVALID_ARGUMENT</p>';
    assert.equal(await draw(source, { lmit: 1 }), failed);
    assert.equal(await draw({}), failed);
    assert.equal(await draw({}, { index: 'byTag' }), failed);
    await db.stats();
    assert.deepEqual([source.reads, source.watches], [0, 0]);
  }));

test('a server renders what was preloaded or is mirrored, also of signals', () =>
  withMemory<Key, number>({}, async (db) => {
    await db.setMany([
      ['a', 1],
      ['b', 2],
    ]);
    await preload(liveQuery(db, { prefix: 'a' }));
    assert.equal(
      await render(ListComponent, { source: signal(db), range: { prefix: 'a' } }),
      '<p>ready a; ready a</p>',
    );
    await mirror(db, { prefix: 'b' }).ready;
    assert.equal(
      await render(ListComponent, { source: db, range: () => ({ prefix: 'b' }) }),
      '<p>ready b; ready b</p>',
    );
  }));

test('outside of an injection context Angular says what is missing', () =>
  withMemory<Key, number>({}, async (db) => {
    assert.throws(() => injectLiveQuery(db), /NG0203.*injectLiveQuery/);
    assert.throws(() => injectLiveWindow(db), /NG0203.*injectLiveWindow/);
    // `Injector.create` gives no effects.
    assert.throws(() => injectLiveQuery(db, {}, { injector: Injector.create({ providers: [] }) }), /No provider/);
  }));

test('the component of the guide draws on a server', () =>
  withMemory<Key, number>({}, async (db) => {
    const { code } = await transform(guideBlock('ts', '@mangrove-kv/angular'), {
      loader: 'ts',
      tsconfigRaw: { compilerOptions: { experimentalDecorators: true, useDefineForClassFields: false } },
    });
    // Inside a package, so that it can import others by name.
    const directory = fileURLToPath(new URL('../../../kv/build/angular', import.meta.url));
    mkdirSync(directory, { recursive: true });
    try {
      writeFileSync(`${directory}/notes.mjs`, code);
      const { Notes } = (await import(pathToFileURL(`${directory}/notes.mjs`).href)) as { Notes: Type<object> };
      // As Angular's compiler does when it builds a program; the one at run time does not see `input()`.
      for (const [name, required] of [
        ['db', false],
        ['author', true],
      ] as const)
        Input({ isSignal: true, alias: name, required } as Input)(Notes.prototype, name);
      class PageComponent {
        readonly db = inject(ASKED).source;
      }
      Component({
        selector: 'app-root',
        imports: [Notes],
        template: '<app-notes [db]="db" author="ada" />',
      })(PageComponent);
      const draw = (source: unknown): Promise<string> => render(PageComponent, { source, range: {} });
      assert.match(await draw(db), /<p>Loading<\/p>/);
      assert.match(await draw(undefined), /<p>Loading<\/p>/);
      assert.match(await draw({}), /<p role="alert">KvError: .*needs a collection/);
      const notes = db.collection<Key, { text: string }>('notes');
      await notes.set(['ada', 1], { text: 'Note A' });
      await mirror(notes).ready;
      assert.match(await draw(notes), /<ul><li>Note A<\/li><\/ul>/);
    } finally {
      rmSync(directory, { recursive: true });
    }
  }));
