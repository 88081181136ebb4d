// Helpers shared by the tests of the demo.
import type { Page } from '@playwright/test';
import { expect } from './persistent.ts';

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
