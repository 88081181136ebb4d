// Figures of benchmarks on pages: checks that they are those of the reports, and writes them.
//
//     <!-- bench: native | 1,000,000 records: 24-byte | ranges of 10 | mangrove / lmdb -->0.73
//     <!-- bench: node | 1,000,000 records: 24 | opening, with the first get | lmdb -->2.76 ms
//
// names a report, what stands before the table, how a row begins, and a column, or two whose ratio
// the figure is. `<!-- bench: node | 100,000 records: 24 -->` on a line above a table of the page says
// that its rows are of that report: of Mangrove, of other columns that the page names, and of the best peer.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const REPORTS = { native: 'bench/native/report/report.md', node: 'bench/node/report/report.md', browser: 'bench/browser/report/report.md', bench: 'bench/README.md' };

const cells = (line) => line.split('|').slice(1, -1).map((cell) => cell.trim());
const withoutRatio = (cell) => cell.replaceAll('**', '').replace(/ \([\d.,]+\)$/, '');
const nameOf = (column) => column.replace(/ \(.*$/, '').toLowerCase();
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
    } else if (table === undefined) tables.push(table = { before, columns: cells(line), rows: [] });
    else if (!/^\|[-:| ]+\|$/.test(line)) table.rows.push(cells(line));
  }
  return tables;
}

export class BenchFigures {
  #tables = new Map();
  #root;

  constructor(root) {
    this.#root = root;
  }

  #rows(report, section, label) {
    const path = REPORTS[report];
    if (path === undefined) throw new Error(`there is no report ${report}`);
    if (!this.#tables.has(path)) this.#tables.set(path, tablesOf(readFileSync(join(this.#root, path), 'utf8')));
    const found = this.#tables.get(path).filter(({ before }) => before.includes(section)).flatMap(({ columns, rows }) => rows.filter(([name]) => name.startsWith(label)).map((row) => ({ columns: columns.map(nameOf), row })));
    if (found.length === 0) throw new Error(`${path} has no row "${label}" below "${section}"`);
    return found[0];
  }

  /** What a marker stands for. */
  figure(marker) {
    const [report, section, label, which] = marker.split('|').map((part) => part.trim());
    const { columns, row } = this.#rows(report, section, label);
    const cell = (name) => {
      const at = columns.indexOf(name.toLowerCase());
      if (at < 1) throw new Error(`${REPORTS[report]} has no column "${name}" in the table of "${label}"`);
      return row[at];
    };
    const [one, other] = which.split(' / ');
    return other === undefined ? withoutRatio(cell(one)) : (amount(cell(one)) / amount(cell(other))).toFixed(2);
  }

  /** A row of a page's table as the report has it. */
  row(marker, header, given) {
    const [report, section] = marker.split('|').map((part) => part.trim());
    const { columns, row } = this.#rows(report, section, given[0]);
    const own = columns.flatMap((name, at) => (name === 'mangrove' || name === 'mangrove-sync' ? [at] : []));
    const [async, sync] = own.map((at) => row[at]);
    const best = row.findIndex((cell, at) => at > 0 && !own.includes(at) && cell.endsWith('(1.00)'));
    const mangrove = (cell) => `${withoutRatio(cell)}`;
    const isSlower = sync !== undefined && async !== '–' && !async.startsWith('**') && sync.startsWith('**') && !given[0].includes('inserts');
    return header.map((name, at) => {
      if (at === 0) return given[0];
      if (name === 'best peer') return `${withoutRatio(row[best])}, ${columns[best] === 'sqlite' ? 'SQLite' : columns[best] === 'indexeddb' ? 'IndexedDB' : columns[best]}`;
      if (name !== 'Mangrove') return withoutRatio(row[columns.indexOf(name.toLowerCase())]);
      if (async === '–') return mangrove(sync);
      return isSlower ? `${mangrove(async)}, synchronous ${mangrove(sync)}` : mangrove(async);
    });
  }

  /** The page with the reports' figures. Throws for markers that mean nothing. */
  written(text) {
    const inProse = text.replace(/<!-- bench: ([^>]*\|[^>]*\|[^>]*\|[^>]*) -->(\d(?:[\d.,]*\d)?(?: (?:\/s|ms|MiB|GiB|KiB))?)/g, (_, marker) => `<!-- bench: ${marker} -->${this.figure(marker)}`);
    let marker;
    let header;
    return inProse.split('\n').map((line) => {
      const begun = /^<!-- bench: ([^|]*\|[^|]*) -->$/.exec(line);
      if (begun !== null) [marker, header] = [begun[1], undefined];
      else if (marker !== undefined && line.startsWith('|')) {
        if (header === undefined) header = cells(line);
        else if (!/^\|[-:| ]+\|$/.test(line)) return `| ${this.row(marker, header, cells(line)).join(' | ')} |`;
      } else if (marker !== undefined && header !== undefined) marker = undefined;
      return line;
    }).join('\n');
  }
}
