// The demo's page with two devices, over a real nats-server. replication.config.ts runs this.
import AxeBuilder from '@axe-core/playwright';
import type { Locator, Page } from '@playwright/test';
import { expect as quick, test } from '../persistent.ts';

/** Replication tries again later and later, up to every 30 seconds. */
const expect = quick.configure({ timeout: 60_000 });

interface Side {
  readonly root: Locator;
  readonly online: Locator;
  readonly pending: Locator;
  readonly status: Locator;
  readonly conflict: Locator;
}

function side(page: Page, id: 'phone' | 'laptop'): Side {
  const root = page.getByTestId(`device-${id}`);
  const part = (name: string): Locator => root.locator(`[data-part="${name}"]`);
  return { root, online: part('online'), pending: part('pending'), status: part('status'), conflict: part('conflict') };
}

async function visit(page: Page, server: string, log = 'test'): Promise<readonly [Side, Side]> {
  await page.goto(`/?server=${encodeURIComponent(server)}&log=${log}#/replication`);
  return [side(page, 'phone'), side(page, 'laptop')];
}

async function add({ root }: Side, text: string): Promise<void> {
  const field = root.getByRole('textbox', { name: 'New note' });
  await field.fill(text);
  await field.press('Enter');
  await expect(field).toHaveValue('');
}

const inputs = ({ root }: Side): Locator => root.locator('.notes input');
const notes = (of: Side): Promise<string[]> =>
  inputs(of).evaluateAll((all) => all.map((input) => (input as HTMLInputElement).value));

async function edit(of: Side, nth: number, text: string): Promise<void> {
  await inputs(of).nth(nth).fill(text);
  await inputs(of).nth(nth).press('Enter');
}

test('devices are kept in step, offline too, and the visitor decides conflicts', async ({ profile }, { config }) => {
  const page = await (await profile.launch()).newPage();
  const [phone, laptop] = await visit(page, String(config.metadata['server']), `test-${Date.now()}`);
  for (const { status } of [phone, laptop]) await expect(status).toHaveText('live');
  await expect(page.getByTestId('replication-absent')).toBeHidden();

  // Each way, and edits and deletions.
  await add(phone, 'milk');
  await expect.poll(() => notes(laptop)).toEqual(['milk']);
  await add(laptop, 'bread');
  await expect.poll(() => notes(phone)).toEqual(['milk', 'bread']);
  await edit(laptop, 0, 'oat milk');
  await expect.poll(() => notes(phone)).toEqual(['oat milk', 'bread']);
  await phone.root.getByRole('button', { name: 'Delete the note' }).nth(1).click();
  await expect.poll(() => notes(laptop)).toEqual(['oat milk']);
  for (const { pending } of [phone, laptop]) await expect(pending).toHaveText('0');

  // Offline: what is written waits.
  await phone.online.uncheck();
  await expect(phone.status).toHaveText('switched offline');
  await add(phone, 'from the phone');
  await expect(phone.pending).toHaveText('1');
  await add(phone, 'once more');
  await expect(phone.pending).toHaveText('2');
  await add(laptop, 'from the laptop');
  await expect(laptop.pending).toHaveText('0');
  expect(await notes(laptop)).toEqual(['oat milk', 'from the laptop']);
  expect(await notes(phone)).toEqual(['oat milk', 'from the phone', 'once more']);
  await phone.online.check();
  const all = ['oat milk', 'from the phone', 'once more', 'from the laptop'];
  for (const device of [phone, laptop]) {
    await expect.poll(() => notes(device)).toEqual(all);
    await expect(device.pending).toHaveText('0');
    await expect(device.status).toHaveText('live');
  }

  // The phone writes first and is the last to be online again: it loses and is asked.
  for (const [answer, result] of [
    ['mine', 'phone mine'],
    ['theirs', 'laptop theirs'],
    ['merged', 'both'],
  ] as const) {
    await phone.online.uncheck();
    await expect(phone.status).toHaveText('switched offline');
    await edit(phone, 0, `phone ${answer}`);
    await expect(phone.pending).toHaveText('1');
    await edit(laptop, 0, `laptop ${answer}`);
    await expect(laptop.pending).toHaveText('0');
    await phone.online.check();
    await expect(phone.conflict).toBeVisible();
    await expect(phone.conflict).toContainText(`phone ${answer}`);
    await expect(phone.conflict).toContainText(`laptop ${answer}`);
    if (answer === 'mine') {
      const { violations } = await new AxeBuilder({ page }).analyze();
      expect(
        violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(' ')).join(', ')}`),
      ).toEqual([]);
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.screenshot({ path: test.info().outputPath('desktop.png'), fullPage: true });
      await page.setViewportSize({ width: 360, height: 740 });
      expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
      await page.screenshot({ path: test.info().outputPath('phone.png'), fullPage: true });
      await page.setViewportSize({ width: 1280, height: 800 });
    }
    if (answer === 'merged') {
      await phone.conflict.getByRole('textbox').fill('both');
      await phone.conflict.getByRole('textbox').press('Enter');
    } else {
      await phone.conflict.getByRole('button', { name: answer === 'mine' ? 'Keep' : 'Take' }).click();
    }
    await expect(phone.conflict).toBeHidden();
    for (const device of [phone, laptop]) {
      await expect.poll(() => notes(device)).toEqual([result, ...all.slice(1)]);
      await expect(device.pending).toHaveText('0');
    }
  }

  // Everything is in the databases.
  await page.reload();
  for (const device of [phone, laptop]) await expect.poll(() => notes(device)).toEqual(['both', ...all.slice(1)]);
});

test('without a server the page says what to run, and both devices work on their own', async ({ profile }) => {
  const page = await (await profile.launch()).newPage();
  const [phone, laptop] = await visit(page, 'ws://127.0.0.1:1');
  await expect(page.getByTestId('replication-absent')).toContainText('npm run start:replication');
  await add(phone, 'on the phone');
  await add(laptop, 'on the laptop');
  await expect.poll(() => notes(phone)).toEqual(['on the phone']);
  await expect.poll(() => notes(laptop)).toEqual(['on the laptop']);
  for (const { pending } of [phone, laptop]) await expect(pending).toHaveText('1');
  await page.reload();
  await expect.poll(() => notes(phone)).toEqual(['on the phone']);
});

test('code of replication is loaded on its page only', async ({ profile }) => {
  const page = await (await profile.launch({})).newPage();
  const scripts: string[] = [];
  page.on('request', (request) => scripts.push(request.url()));
  await page.goto('/#/explore');
  await expect(page.getByTestId('import')).toBeVisible();
  expect(scripts.filter((url) => /\/devices-[^/]*\.js/.test(url) && !url.includes('service-worker'))).toEqual([]);
  await page.getByRole('link', { name: 'Replication' }).click();
  await expect(page.getByTestId('device-phone')).toBeVisible();
  expect(scripts.filter((url) => /\/devices-[^/]*\.js/.test(url)).length).toBeGreaterThan(0);
});
