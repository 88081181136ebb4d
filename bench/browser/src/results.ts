// Plots and the table of a report, as elements.
import { best, cell, isTaskRow } from './report/numbers.ts';
import { rowSvg } from './report/plot.ts';
import { titleOf } from './report/report.ts';
import type { Report, Row } from './report/report.ts';

export function element<N extends keyof HTMLElementTagNameMap>(
  name: N,
  properties: Partial<HTMLElementTagNameMap[N]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[N] {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function plot(report: Report, row: Row): HTMLElement {
  const figure = element('figure', {}, element('figcaption', {}, row.name));
  // Ours, escaped where it has words of others in it.
  figure.insertAdjacentHTML('beforeend', rowSvg(report, row));
  return figure;
}

function tableRow(report: Report, row: Row): HTMLTableRowElement {
  const bestOfAll = best(row.unit, row.values);
  const head = element('th', { scope: 'row' }, row.name);
  return element(
    'tr',
    {},
    head,
    ...row.values.map((value, at) => {
      if (value !== undefined)
        return element('td', { className: value === bestOfAll ? 'bench-best' : '' }, cell(row.name, row.unit, value));
      const reason = report.reason(row, report.peers[at] as string);
      return element(
        'td',
        { className: 'bench-none', title: reason ?? '' },
        reason === undefined ? '' : 'does not run',
      );
    }),
  );
}

export function results(report: Report): HTMLElement {
  const { rows, peers, failures } = report;
  const plots = rows
    .filter(({ name, values }) => !isTaskRow(name) && values.some((value) => value !== undefined))
    .map((row) => plot(report, row));
  const table = element(
    'table',
    {},
    element(
      'thead',
      {},
      element(
        'tr',
        {},
        element('th', { scope: 'col' }, 'Median'),
        ...peers.map((peer) => element('th', { scope: 'col' }, titleOf(peer))),
      ),
    ),
    element('tbody', {}, ...rows.map((row) => tableRow(report, row))),
  );
  const limits = report.limits.map(({ name, unit, value }) => element('li', {}, `${name}: ${cell(name, unit, value)}`));
  const reasons = failures.map(({ peer, name, stage, error }) =>
    element('li', {}, `${titleOf(peer)}, ${name === '' ? stage : name}: ${error}`),
  );
  return element(
    'div',
    {},
    ...plots,
    element('div', { className: 'bench-table' }, table),
    element('ul', {}, ...limits, ...reasons),
  );
}
