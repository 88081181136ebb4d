// Bars of each rate beside the best of its row, on one page.
import { best, short } from './numbers.mjs';

const WIDTH = 1000;
const LABELS = 300;
const BAR = 11;
const GAP = 10;
const TITLE = 36;
const LEGEND = 44;
const COLORS = ['#1B7837', '#7FBF7B', '#B2182B', '#2166AC', '#E69138', '#762A83', '#6E6E6E', '#0096A0'];

/** Ours have the greens. */
function colors({ engines, peers }) {
  let ours = 0;
  let others = 2;
  return engines.map((engine) => COLORS[peers.includes(engine) ? others++ : ours++]);
}

const rectangle = (x, y, width, height, fill) =>
  `<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${fill}"/>`;

function label(text, x, y, size, anchor = 'start') {
  const escaped = text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  return `<text x="${x}" y="${y}" dy="0.35em" text-anchor="${anchor}" font-family="sans-serif" font-size="${size}" fill="#000000">${escaped}</text>`;
}

function drawRow({ name, unit, values }, top, fills) {
  const longest = best(unit, values);
  const lines = [label(name, LABELS - GAP, top + Math.floor((values.length * BAR) / 2), 10, 'end')];
  values.forEach((value, at) => {
    if (value === undefined) return;
    const y = top + at * BAR;
    const width = Math.max(1, Math.round((value / longest) * (WIDTH - LABELS - 100)));
    lines.push(rectangle(LABELS, y, width, BAR - 2, fills[at]));
    lines.push(label(`${short(value)} /s`, LABELS + width + 4, y + Math.floor(BAR / 2), 8));
  });
  return lines;
}

export function svg(report) {
  const { engines } = report;
  const fills = colors(report);
  const rowHeight = engines.length * BAR + GAP;
  const lines = engines.flatMap((name, at) => {
    const left = GAP + Math.floor((at * (WIDTH - GAP)) / engines.length);
    return [rectangle(left, 14, 12, 12, fills[at]), label(name, left + 17, 20, 10)];
  });
  let top = LEGEND;
  for (const { title, rows } of report.sections) {
    lines.push(label(title, GAP, top + TITLE / 2, 12));
    top += TITLE;
    for (const row of rows.filter(({ unit }) => unit === '/s')) {
      lines.push(...drawRow(row, top, fills));
      top += rowHeight;
    }
  }
  const height = top + GAP;
  const head = `<svg width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" xmlns="http://www.w3.org/2000/svg">`;
  return `${[head, rectangle(0, 0, WIDTH, height, '#FFFFFF'), ...lines, '</svg>'].join('\n')}\n`;
}
