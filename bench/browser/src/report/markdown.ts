import { INDEX_STAGES, PEERS } from '../peers/index.ts';
import { LIMITS, WORKLOADS } from '../stages/index.ts';
import { sizes } from '../stages/stage.ts';
import { verdicts } from './goals.ts';
import { best, cell, isTaskRow } from './numbers.ts';
import { isOurs, isVolatile, titleOf } from './report.ts';
import type { Report, Row } from './report.ts';

/** The peers that have a part in a stage. */
function columns({ settings, runs, failures }: Report, stage: string): string[] {
  return settings.peers.filter((peer) => [...runs, ...failures].some((of) => of.peer === peer && of.stage === stage));
}

function cells(report: Report, row: Row): string[] {
  const { name, unit } = row;
  const peers = columns(report, row.stage);
  const values = peers.map((peer) => row.values[report.peers.indexOf(peer)]);
  const durable = values.map((value, at) => (isVolatile(peers[at] as string) ? undefined : value));
  const bestPeer = best(
    unit,
    durable.filter((_, at) => !isOurs(peers[at] as string)),
  );
  const bestOfAll = best(unit, durable);
  return values.map((value, at) => {
    if (value === undefined) return '–';
    const shown = cell(name, unit, value);
    if (durable[at] === undefined) return shown;
    const ratio =
      !isTaskRow(name) && bestPeer !== undefined && bestPeer > 0 ? ` (${(value / bestPeer).toFixed(2)})` : '';
    return (value === bestOfAll ? `**${shown}**` : shown) + ratio;
  });
}

function escape(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}

export function markdown(report: Report): string {
  const { settings, peers, rows, failures } = report;
  const counts = rows
    .filter(({ stage }) => stage !== 'load')
    .flatMap((row) => row.rounds.map((values) => values.length))
    .filter((count) => count > 0);
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  // An interrupted run has fewer of what comes last.
  const rounds =
    counts.length === 0 || most === 1
      ? 'one round'
      : `medians of ${least === most ? most : `${least} to ${most}`} rounds`;
  const { records, indexed } = sizes(settings.scale, settings.indexRows);
  const lines = [
    `${settings.browser}, ${records.toLocaleString('en-US')} rows of about 150 bytes of JSON, ${rounds}; in brackets the ratio to the best peer, in bold what is best of all. Rates are better when higher, everything else when lower.${report.machine === '' ? '' : ` ${report.machine}.`}`,
  ];
  if (settings.stages.some((stage) => INDEX_STAGES.includes(stage)))
    lines[0] += ` With indexes there are ${indexed.toLocaleString('en-US')} rows.`;
  for (const stage of settings.stages) {
    const own = rows.filter((row) => row.stage === stage);
    if (own.length === 0) continue;
    const titles = columns(report, stage).map(titleOf);
    lines.push(
      '',
      `### ${WORKLOADS[stage] ?? stage}`,
      '',
      `| | ${titles.join(' | ')} |`,
      `|---|${'--:|'.repeat(titles.length)}`,
    );
    for (const row of own) lines.push(`| ${row.name} | ${cells(report, row).join(' | ')} |`);
  }
  if (report.limits.length > 0) {
    lines.push(
      '',
      `### ${WORKLOADS[LIMITS] ?? LIMITS}`,
      '',
      'A store whose engine is in a worker cannot be faster than these.',
      '',
      '| | |',
      '|---|--:|',
    );
    for (const { name, unit, value } of report.limits) lines.push(`| ${name} | ${cell(name, unit, value)} |`);
  }
  lines.push('', '### Goals', '', '| | Goal | Found | |', '|---|---|---|---|');
  for (const { row, goal, met, found } of verdicts(report))
    lines.push(`| ${row.name} | ${goal} | ${escape(found)} | ${met ? 'met' : '**missed**'} |`);
  if (failures.length > 0) {
    lines.push('', '### What did not run', '');
    for (const { peer, stage, name, error } of failures)
      lines.push(
        `- ${titleOf(peer)}, ${name === '' ? (WORKLOADS[stage] ?? stage).toLowerCase() : name}: ${escape(error)}`,
      );
  }
  lines.push('', '### Peers', '');
  for (const peer of peers)
    lines.push(`- ${titleOf(peer)} ${settings.versions[peer] ?? ''}`.trimEnd() + `: ${PEERS[peer]?.use ?? ''}`);
  return `${lines.join('\n')}\n`;
}
