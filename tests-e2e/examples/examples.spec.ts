// The example pages of docs/examples, built by Vite and operated as a user would.
import { fileURLToPath } from 'node:url';
import { serve } from '../http.ts';
import { expect, test } from '../persistent.ts';

const built = (name: string): string => fileURLToPath(new URL(`../../docs/examples/build/${name}`, import.meta.url));

test('the React todo list follows the database and survives a restart of the browser', async ({ profile }) => {
  await using server = await serve(built('react-todo'));
  const browser = await profile.launch();
  const page = await browser.newPage();
  await page.goto(server.url);
  const list = page.getByRole('textbox', { name: 'text' });
  await expect(page.getByRole('heading')).toHaveText('0 to do');
  for (const text of ['write', 'read', 'erase']) {
    await page.getByRole('textbox', { name: 'new' }).fill(text);
    await page.keyboard.press('Enter');
    await expect(list.last()).toHaveValue(text);
  }
  await page.getByRole('checkbox', { name: 'done: write' }).click();
  await expect(page.getByRole('heading')).toHaveText('2 to do');
  await expect(list.last()).toHaveValue('write');
  await list.first().fill('read more');
  await list.first().blur();
  await page.getByRole('checkbox', { name: 'done: read more' }).waitFor();
  await page.getByRole('button', { name: 'Remove 1 done' }).click();
  await expect(list).toHaveCount(2);
  const second = await browser.newPage();
  await second.goto(server.url);
  // Both tabs show the same list.
  await expect(second.getByRole('textbox', { name: 'text' })).toHaveCount(2);
  await second.getByRole('textbox', { name: 'new' }).fill('elsewhere');
  await second.keyboard.press('Enter');
  await expect(list).toHaveCount(3);
  await browser.close();

  const again = await (await profile.launch()).newPage();
  await again.goto(server.url);
  const values = again.getByRole('textbox', { name: 'text' });
  await expect(values).toHaveCount(3);
  expect(await values.evaluateAll((boxes) => boxes.map((box) => (box as HTMLInputElement).value))).toEqual([
    'read more',
    'erase',
    'elsewhere',
  ]);
});

test('a list of a million rows shows all visible ones in every frame while it scrolls', async ({ profile }) => {
  test.setTimeout(600_000);
  await using server = await serve(built('long-list'));
  const page = await (await profile.launch()).newPage();
  await page.goto(server.url);
  await expect(page.getByRole('heading')).toHaveText('1000000 rows', { timeout: 500_000 });
  const list = page.locator('.list');
  for (const start of [0, 10_000_000, 19_900_000]) {
    await list.evaluate((element, top) => {
      element.scrollTop = top;
    }, start);
    await expect(page.getByText(`row ${start / 20 + 5}`, { exact: true })).toBeInViewport();
    for (const speed of [-60, 100]) {
      // Rows that are seen in each frame, and those that should be.
      const { frames, blank } = await list.evaluate(async (element, pixels) => {
        let [frames, blank] = [0, 0];
        for (; frames < 150; frames++) {
          element.scrollTop += pixels;
          await new Promise(requestAnimationFrame);
          const [first, last] = [element.scrollTop / 20, (element.scrollTop + element.clientHeight) / 20];
          const shown = new Set([...element.querySelectorAll('li')].map(({ textContent }) => textContent));
          for (let row = Math.floor(first); row < Math.min(last, 1_000_000); row++) {
            if (shown.has(`row ${row}`)) continue;
            blank++;
            break;
          }
        }
        return { frames, blank };
      }, speed);
      expect({ start, speed, frames, blank }).toEqual({ start, speed, frames: 150, blank: 0 });
    }
  }
});

test('the service worker answers from the database when the network is down', async ({ profile }) => {
  const server = await serve(built('service-worker'));
  const page = await (await profile.launch()).newPage();
  await page.goto(server.url);
  const ask = page.getByRole('button', { name: 'Ask' });
  await expect(ask).toBeEnabled();
  await ask.click();
  await expect(page.getByRole('status')).toHaveText('The Analytical Engine weaves algebraical patterns (network)');
  await server[Symbol.asyncDispose]();
  await expect(async () => {
    await ask.click();
    await expect(page.getByRole('status')).toHaveText('The Analytical Engine weaves algebraical patterns (database)', {
      timeout: 1_000,
    });
  }).toPass();
});

test('inspections: 20,000 with photos, offline from the first visit on', async ({ profile }) => {
  test.slow();
  const SAMPLE = 20_000;
  const server = await serve(built('inspections'));
  const browser = await profile.launch();
  const page = await browser.newPage();
  await page.goto(server.url);
  await expect(page.getByText('This page works offline.')).toBeVisible();
  await server[Symbol.asyncDispose]();

  await page.reload();
  await page.getByRole('button', { name: 'Load the sample' }).click();
  const status = page.getByRole('status');
  await expect(status).toHaveText(`${SAMPLE} to do`, { timeout: 120_000 });

  await page.reload();
  await expect(status).toHaveText(`${SAMPLE} to do`);
  // The sample is due in another order than that of its keys.
  const siteAt = (position: number): string => {
    const id = Array.from({ length: SAMPLE }, (_, key) => key).find((key) => (key * 7919) % SAMPLE === position);
    return `Site ${id}`;
  };
  for (const position of [0, 10_000, SAMPLE - 1]) {
    await page.locator('#list').evaluate((list, top) => {
      list.scrollTop = top;
    }, position * 48);
    const photo = page.getByAltText(`photo of ${siteAt(position)}`, { exact: true });
    await expect(photo).toBeInViewport();
    await expect(photo).toHaveJSProperty('naturalWidth', 160);
    expect(await page.locator('#list .row').count()).toBeLessThan(50);
  }

  const last = siteAt(SAMPLE - 1);
  // As large as photos are.
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"><!--${'x'.repeat(3_000_000)}--></svg>`;
  await page
    .getByLabel(`photo for ${last}`, { exact: true })
    .setInputFiles({ name: 'taken.svg', mimeType: 'image/svg+xml', buffer: Buffer.from(svg) });
  await expect(status).toHaveText(`${SAMPLE - 1} to do`);
  await browser.close();

  // Still without a server.
  const again = await (await profile.launch()).newPage();
  await again.goto(server.url);
  await expect(again.getByRole('status')).toHaveText(`${SAMPLE - 1} to do`);
  await again.getByRole('checkbox').check();
  await expect(again.getByRole('status')).toHaveText('1 done');
  await expect(again.getByAltText(`photo of ${last}`, { exact: true })).toHaveJSProperty('naturalWidth', 30);
  await expect(again.getByRole('img')).toHaveCount(1);
});
