// Imports the demo's data set into fresh databases in Chromium, measures, and prints the figures of each round.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from '@playwright/test';
import { build, preview } from 'vite';

const ROUNDS = Number(process.argv[2] ?? 3);
const root = fileURLToPath(new URL('../../demo-web', import.meta.url));
const ARGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

async function table(page, selector) {
  return page.locator(selector).evaluate((element) => [...element.querySelectorAll('div, tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent)));
}

/** One import on a new profile, and what the page says of it. */
async function round(url) {
  const profile = await mkdtemp(join(tmpdir(), 'mangrove-bench-'));
  const executablePath = process.env.CHROMIUM_PATH ?? '/usr/bin/chromium';
  const context = await chromium.launchPersistentContext(profile, { executablePath, args: ARGS });
  try {
    const page = await context.newPage();
    await page.goto(url);
    await page.getByTestId('import').click();
    await page.getByTestId('list').waitFor({ timeout: 120_000 });
    const imported = await page.locator('#toast span').innerText();
    // A new page: the database is opened from the disk.
    await page.reload();
    await page.getByTestId('list').waitFor();
    await page.getByTestId('stat-open').waitFor();
    const opened = await page.getByTestId('stat-open').innerText();
    await page.getByTestId('measure').click();
    await page.locator('#measure-table[data-done]').waitFor({ timeout: 120_000 });
    await page.waitForTimeout(500);
    return { imported, opened, measured: await table(page, '#measure-table'), stats: await table(page, '#stats') };
  } finally {
    await context.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

await build({ root, logLevel: 'warn' });
const server = await preview({ root, preview: { port: 4175, strictPort: true }, logLevel: 'warn' });
try {
  const rounds = [];
  for (let number = 0; number < ROUNDS; number++) rounds.push(await round('http://localhost:4175/'));
  for (const { imported, opened, measured } of rounds) {
    console.log(`\n${imported}; opened with its first read in ${opened}`);
    for (const [name, time, rate] of measured) console.log(`  ${name.padEnd(22)} ${time.padStart(10)} ${rate.padStart(12)}`);
  }
  console.log('\nAfter the last round:');
  for (const [name, value] of rounds.at(-1).stats) console.log(`  ${name.padEnd(22)} ${value}`);
} finally {
  await server.close();
}
