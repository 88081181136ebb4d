// Helpers shared by the tests of the demo.
import type { Page } from '@playwright/test';
import { readCities } from '../demo-web/tools/cities.ts';
import { expect } from './persistent.ts';

/** The demo's data set. */
export const CITIES = readCities();

/** Imports the data set as a visitor would; returns the number of cities. */
export async function importCities(page: Page, query = ''): Promise<number> {
  await page.goto(`/${query}`);
  await page.getByTestId('import').click();
  await expect(page.getByTestId('list')).toBeVisible({ timeout: 60_000 });
  return hits(page);
}

/** The number of cities found. */
export async function hits(page: Page): Promise<number> {
  const text = await page.getByTestId('hits').textContent();
  return Number(text?.replaceAll(',', ''));
}

/** A figure of the panel as a percentage of the JSON that was imported. */
export async function percentOfJson(page: Page, figure: string): Promise<number> {
  const shown = page.getByTestId(`stat-${figure}`);
  await expect(shown).toHaveText(/· \d+ %$/);
  return Number(/(\d+) %$/.exec((await shown.textContent()) ?? '')?.[1]);
}
