// Generates the app's icons from the drawing: `node tools/icons.mjs`. Its output is committed.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from '@playwright/test';

const file = (name) => fileURLToPath(new URL(`../public/icons/${name}`, import.meta.url));
const LEAF = 'M16 3c6 4 9 9 9 14a9 9 0 0 1-8 9v4h-2v-4a9 9 0 0 1-8-9c0-5 3-10 9-14z';

/**
 * The leaf, scaled to a share of the icon's size, on a coloured background. Platforms cut a
 * maskable icon to their shapes.
 */
const icon = (share, radius) =>
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="${radius}" fill="#0b6b50"/>` +
  `<path fill="#e9f7f1" transform="translate(${16 - 16 * share} ${16.5 - 16.5 * share}) scale(${share})" d="${LEAF}"/></svg>\n`;

mkdirSync(file(''), { recursive: true });
writeFileSync(file('icon.svg'), icon(0.78, 7));
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM_PATH ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
const page = await browser.newPage();
for (const [name, size, svg] of [
  ['icon-192.png', 192, icon(0.78, 7)],
  ['icon-512.png', 512, icon(0.78, 7)],
  ['maskable-512.png', 512, icon(0.6, 0)],
]) {
  await page.setViewportSize({ width: size, height: size });
  await page.setContent(`<style>body { margin: 0 } svg { display: block; width: ${size}px }</style>${svg}`);
  await page.screenshot({ path: file(name), omitBackground: true });
  process.stdout.write(`${name}: ${readFileSync(file(name)).length} bytes\n`);
}
await browser.close();
