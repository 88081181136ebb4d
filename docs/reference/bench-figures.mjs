// Figures of benchmarks on pages: checks that they are those of the reports, and writes them.
//
//     <!-- bench: native | 1,000,000 records: 24-byte | ranges of 10 | mangrove / lmdb -->0.73
//     <!-- bench: node | 1,000,000 records: 24 | opening, with the first get | lmdb -->2.76 ms
//
// The marker names a report, text above one of its tables, the start of a row, and a column, or two
// columns whose ratio is the figure. `<!-- bench: node | 100,000 records: 24 -->` above a table of the
// page takes each row from that report: Mangrove's figure, those of other columns that the table
// names, and the best peer's.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const REPORTS = {
  native: 'bench/results/native.md',
  node: 'bench/results/node.md',
  browser: 'bench/results/browser.md',
  bench: 'bench/README.md',
};

const cells = (line) =>
  line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());
const withoutRatio = (cell) => cell.replaceAll('**', '').replace(/ \([\d.,]+\)$/, '');
const nameOf = (column) => column.replace(/ \(.*$/, '');
const RULE = /^\|[-:| ]+\|$/;
const indexOf = (columns, name) => columns.findIndex((column) => column.toLowerCase() === name.toLowerCase());
const amount = (cell) => Number(/[\d.,]+/.exec(withoutRatio(cell))?.[0].replaceAll(',', ''));

/** The tables of a page, each with the text before it, from its heading on. */
function tablesOf(text) {
  const tables = [];
  let before = '';
  let table;
  for (const line of text.split('\n')) {
    if (line.startsWith('#')) before = line;
    if (!line.startsWith('|')) {
      if (table === undefined) before += `\n${line}`;
      else [before, table] = [`${before.split('\n')[0]}\n${line}`, undefined];
    } else if (table === undefined) tables.push((table = { before, columns: cells(line), rows: [] }));
    else if (!RULE.test(line)) table.rows.push(cells(line));
  }
  return tables;
}

export class BenchFigures {
  #tables = new Map();
  #root;

  constructor(root) {
    this.#root = root;
  }

  /** The first row that begins with the label, in the tables below such a text. */
  #row(report, section, label) {
    const path = REPORTS[report];
    if (path === undefined) throw new Error(`there is no report ${report}`);
    if (!this.#tables.has(path)) this.#tables.set(path, tablesOf(readFileSync(join(this.#root, path), 'utf8')));
    for (const { before, columns, rows } of this.#tables.get(path)) {
      const row = before.includes(section) ? rows.find(([name]) => name.startsWith(label)) : undefined;
      if (row !== undefined) return { columns: columns.map(nameOf), row };
    }
    throw new Error(`${path} has no row "${label}" below "${section}"`);
  }

  /** What a marker stands for. */
  figure(marker) {
    const [report, section, label, which] = marker.split('|').map((part) => part.trim());
    const { columns, row } = this.#row(report, section, label);
    const cell = (name) => {
      const at = indexOf(columns, name);
      if (at < 1) throw new Error(`${REPORTS[report]} has no column "${name}" in the table of "${label}"`);
      return row[at];
    };
    const [one, other] = which.split(' / ');
    return other === undefined ? withoutRatio(cell(one)) : (amount(cell(one)) / amount(cell(other))).toFixed(2);
  }

  /** A row of a page's table as the report has it. */
  row(marker, header, given) {
    const [report, section] = marker.split('|').map((part) => part.trim());
    const { columns, row } = this.#row(report, section, given[0]);
    const own = ['mangrove', 'mangrove-sync'].map((name) => indexOf(columns, name));
    const [async, sync] = own.map((at) => row[at]);
    const best = row.findIndex((cell, at) => at > 0 && !own.includes(at) && cell.endsWith('(1.00)'));
    const isOnlySyncBest =
      sync !== undefined &&
      async !== '–' &&
      !async.startsWith('**') &&
      sync.startsWith('**') &&
      !given[0].includes('inserts');
    return header.map((name, at) => {
      if (at === 0) return given[0];
      if (name === 'best peer') return `${withoutRatio(row[best])}, ${columns[best]}`;
      if (name !== 'Mangrove') return withoutRatio(row[indexOf(columns, name)]);
      if (async === '–') return withoutRatio(sync);
      return isOnlySyncBest ? `${withoutRatio(async)}, synchronous ${withoutRatio(sync)}` : withoutRatio(async);
    });
  }

  /** The page with the reports' figures. Throws for markers that mean nothing. */
  written(text) {
    const inProse = text.replace(
      /<!-- bench: ([^>]*\|[^>]*\|[^>]*\|[^>]*) -->(\d(?:[\d.,]*\d)?(?: (?:\/s|ms|MiB|GiB|KiB))?)/g,
      (_, marker) => `<!-- bench: ${marker} -->${this.figure(marker)}`,
    );
    let marker;
    let header;
    return inProse
      .split('\n')
      .map((line) => {
        const begun = /^<!-- bench: ([^|]*\|[^|]*) -->$/.exec(line);
        if (begun !== null) [marker, header] = [begun[1], undefined];
        else if (marker !== undefined && line.startsWith('|')) {
          if (header === undefined) header = cells(line);
          else if (!RULE.test(line)) return `| ${this.row(marker, header, cells(line)).join(' | ')} |`;
        } else if (marker !== undefined && header !== undefined) marker = undefined;
        return line;
      })
      .join('\n');
  }
}
