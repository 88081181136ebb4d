// Writes the report from the figures.
import { cpus } from 'node:os';
import { CODECS, manifest } from './codecs.mjs';
import { BY_HAND_NAMES } from './mutate.mjs';
import { short } from './numbers.mjs';

const MARKS = { kept: '✓', refused: 'r', fails: 'f', differs: '✗' };

const line = (cells) => `| ${cells.join(' | ')} |`;
const table = (head, rows, align = '--:') => [
  line(head),
  `|---|${`${align}|`.repeat(head.length - 1)}`,
  ...rows.map(line),
  '',
];

const extreme = (values, highest) => {
  const known = Object.values(values).filter((value) => value !== undefined);
  return highest ? Math.max(...known) : Math.min(...known);
};

/** Returns each figure with its ratio to the best of its row, which is bold. */
function figures(ids, rows, highest) {
  return rows.map(({ name, values }) => {
    const best = extreme(values, highest);
    return [
      name,
      ...ids.map((id) => {
        const value = values[id];
        if (value === undefined) return '–';
        const shown = value === best ? `**${short(value)}**` : short(value);
        return `${shown} (${(value / best).toFixed(2)})`;
      }),
    ];
  });
}

/** Returns the geometric mean of the ratios to the best, over the rows that every codec has. */
function mean(id, ids, rows, highest) {
  const complete = rows.filter(({ values }) => ids.every((candidate) => values[candidate] !== undefined));
  const logs = complete.map(({ values }) => Math.log(values[id] / extreme(values, highest)));
  return Math.exp(logs.reduce((sum, log) => sum + log, 0) / logs.length);
}

const tally = (id, fidelity) =>
  Object.keys(MARKS).map((kind) => fidelity.filter(({ outcomes }) => outcomes[id] === kind).length);

function summary({ ids, fidelity, sizes, speed, bundles }) {
  const rows = ids.map((id) => [
    id,
    ...tally(id, fidelity),
    ...[mean(id, ids, sizes, false), mean(id, ids, speed.encode, true), mean(id, ids, speed.decode, true)].map(
      (ratio) => ratio.toFixed(2),
    ),
    bundles[id] === undefined ? '–' : short(bundles[id].gzip),
  ]);
  return table(['', 'kept', 'refused', 'fails', 'differs', 'size', 'encode', 'decode', 'gzip, bytes'], rows);
}

function fidelityTables({ ids, fidelity }) {
  const groups = [...new Set(fidelity.map(({ group }) => group))];
  return groups.flatMap((group) =>
    table(
      [group, ...ids],
      fidelity
        .filter((row) => row.group === group)
        .map(({ name, outcomes }) => [name, ...ids.map((id) => MARKS[outcomes[id]])]),
      ':-:',
    ),
  );
}

function hostileTables({ ids, hostile }) {
  const mutated = ids.map((id) => {
    const { values, errors, hangs, deaths, slowest, largest, globals, results } = hostile[id];
    return [
      id,
      values.toLocaleString('en-US'),
      errors.toLocaleString('en-US'),
      hangs,
      deaths,
      `${short(slowest.ms)} ms`,
      `${short(largest.bytes / 1024)} KiB from ${largest.length.toLocaleString('en-US')} bytes`,
      globals.join(', ') || 'none',
      results,
    ];
  });
  const named = BY_HAND_NAMES.map((name) => [name, ...ids.map((id) => hostile[id].named[name] ?? '')]);
  return [
    ...table(
      [
        '',
        'values',
        'errors',
        'hangs',
        'crashes',
        'slowest',
        'largest growth',
        'prototypes changed',
        'values with a prototype from the bytes',
      ],
      mutated,
    ),
    'By hand, what came of it, with the memory where it was more than 1 MiB:',
    '',
    ...table(['', ...ids], named, '---'),
  ];
}

export function markdown(results) {
  const { ids, errors, settings, fidelity, sizes, speed, bundles } = results;
  const { count, rounds, ms, native } = settings;
  const lines = [
    '# Value codecs',
    '',
    `${results.date}, Node ${process.versions.node}, ${cpus().length} × ${cpus()[0].model}, ${process.platform} ${process.arch}. Rates are ${rounds === 1 ? 'those of one round' : `medians of ${rounds} rounds`} of at least ${ms} ms for each figure, the codecs in an order that changes with the round. ${native ? 'Native additions of packages were let run.' : 'Native additions of packages were off.'}`,
    '',
    ...table(
      ['codec', 'package', 'licence', 'what'],
      ids.map((id) => {
        const { version, license } = manifest(id);
        return [id, `${CODECS[id].package} ${version}`, license, CODECS[id].about];
      }),
      '---',
    ),
    '## Summary',
    '',
    `Kept, refused, fails and differs count the ${fidelity.length} rows of fidelity. Size, encode and decode are geometric means of the ratio to the best, over the data that every codec keeps: size is better when lower, the other two when higher.`,
    '',
    ...summary(results),
    '## Fidelity',
    '',
    '✓ as structured clone, `r` refused by encode, `f` encode took it and decode throws, ✗ something else came back and nobody was told. In the group of refusals ✓ is that encode throws.',
    '',
    ...fidelityTables(results),
    '## Hostile bytes',
    '',
    `${count.toLocaleString('en-US')} encodings with bytes changed, lengths written over or the end cut off, and those made by hand. A hang is more than 5 seconds; growth is that of the heap and of buffers during one call.`,
    '',
    ...hostileTables(results),
    '## Sizes',
    '',
    'Bytes, mean of the values of a set; – where the codec does not keep them.',
    '',
    ...table(['', ...ids], figures(ids, sizes, false)),
    '## Encode, values per second',
    '',
    ...table(['', ...ids], figures(ids, speed.encode, true)),
    '## Decode, values per second',
    '',
    ...table(['', ...ids], figures(ids, speed.decode, true)),
    '## Code for a page',
    '',
    'Bytes, bundled for browsers and minified by esbuild.',
    '',
    ...table(
      ['', 'minified', 'gzip', 'brotli'],
      ids
        .filter((id) => bundles[id] !== undefined)
        .map((id) => [id, ...Object.values(bundles[id]).map((value) => value.toLocaleString('en-US'))]),
    ),
  ];
  if (errors.length > 0) lines.push('## What did not run', '', ...errors.map(([id, error]) => `- ${id}: ${error}`), '');
  return `${lines.join('\n').trimEnd()}\n`;
}
