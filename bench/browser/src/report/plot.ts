// Bars of one row beside the best, as SVG text: colours are CSS variables with the light ones as they are, so that it also stands alone.
import { best, cell, isRate, times } from './numbers.ts';
import { isOurs, titleOf } from './report.ts';
import type { Report, Row } from './report.ts';

const WIDTH = 720;
const LABELS = 210;
const NUMBERS = 120;
const BAR = 20;

const escape = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');

function text(content: string, x: number, y: number, anchor: 'start' | 'end', fill: string): string {
  return `<text x="${x}" y="${y}" dy="0.35em" text-anchor="${anchor}" font-family="system-ui, sans-serif" font-size="12" fill="${fill}">${escape(content)}</text>`;
}

const INK = 'var(--bench-ink, #1a1a1a)';
const MUTED = 'var(--bench-muted, #6b6b6b)';
const OURS = 'var(--bench-ours, #1b7837)';
const PEER = 'var(--bench-peer, #8a8fa3)';

/** The longest bar is the best: rates by their size, times and sizes by their inverse. */
export function bars(report: Report, row: Row, top = 0): { svg: string; height: number } {
  const { peers } = report;
  const bestOfAll = best(row.unit, row.values);
  const parts = peers.map((peer, at) => {
    const y = top + at * BAR + BAR / 2;
    const value = row.values[at];
    const label = text(titleOf(peer), LABELS - 8, y, 'end', isOurs(peer) ? INK : MUTED);
    if (value === undefined) return label + text(report.reason(row, peer) ?? '–', LABELS + 4, y, 'start', MUTED);
    const part =
      bestOfAll === undefined || (bestOfAll <= 0 && !isRate(row.unit))
        ? value === bestOfAll
          ? 1
          : 0.5
        : Math.min(1, times(row.unit, value, bestOfAll));
    const width = Math.max(2, Math.round(part * (WIDTH - LABELS - NUMBERS)));
    return `${label}<rect x="${LABELS}" y="${y - 7}" width="${width}" height="14" rx="2" fill="${isOurs(peer) ? OURS : PEER}"/>${text(cell(row.name, row.unit, value), LABELS + width + 6, y, 'start', INK)}`;
  });
  return { svg: parts.join('\n'), height: peers.length * BAR };
}

/** One row for a page; the table has the same figures. */
export function rowSvg(report: Report, row: Row): string {
  const { svg, height } = bars(report, row);
  return `<svg viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${escape(row.name)}: the figures are in the table" xmlns="http://www.w3.org/2000/svg">${svg}</svg>`;
}

/** All rows on one sheet. */
export function sheet(report: Report): string {
  let top = 12;
  const parts: string[] = [];
  for (const row of report.rows) {
    parts.push(
      `<text x="12" y="${top + 10}" dy="0.35em" font-family="system-ui, sans-serif" font-size="13" font-weight="600" fill="#1a1a1a">${escape(row.name)}</text>`,
    );
    top += 26;
    const { svg, height } = bars(report, row, top);
    parts.push(svg);
    top += height + 14;
  }
  return `<svg width="${WIDTH}" height="${top}" viewBox="0 0 ${WIDTH} ${top}" xmlns="http://www.w3.org/2000/svg"><rect width="${WIDTH}" height="${top}" fill="#ffffff"/>\n${parts.join('\n')}\n</svg>\n`;
}
