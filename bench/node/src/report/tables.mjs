import { best, short } from './numbers.mjs';

export function markdown(report) {
  const { settings, versions } = report;
  const rounds = settings.rounds === 1 ? 'one round' : `medians of ${settings.rounds} rounds`;
  const peers = report.peers.map((name) => `${name} ${versions[name]}`.trim()).join(', ');
  const lines = [
    `Node ${process.versions.node}, ${settings.cacheBytes / 2 ** 20} MiB of cache, values as ${settings.values}, ${rounds}; in brackets the ratio to the best peer, in bold what is best of all. Peers: ${peers}.`,
  ];
  for (const { title, rows } of report.sections) {
    lines.push(
      '',
      `### ${title}`,
      '',
      `| | ${report.engines.join(' | ')} |`,
      `|---|${'--:|'.repeat(report.engines.length)}`,
    );
    for (const row of rows) lines.push(`| ${row.name} | ${cells(report, row).join(' | ')} |`);
  }
  if (report.errors.length > 0) {
    lines.push('', '### What did not run', '');
    for (const [engine, error] of report.errors) lines.push(`- ${engine}: ${error}`);
  }
  return `${lines.join('\n')}\n`;
}

function cells(report, { unit, values }) {
  const peers = values.filter((_, at) => report.peers.includes(report.engines[at]));
  const bestPeer = best(unit, peers);
  const bestOfAll = best(unit, values);
  return values.map((value) => {
    if (value === undefined) return '–';
    const shown = `${short(value)} ${unit}`;
    // Nothing is a multiple of memory that was not even taken.
    const ratio = bestPeer > 0 ? ` (${(value / bestPeer).toFixed(2)})` : '';
    return (value === bestOfAll ? `**${shown}**` : shown) + ratio;
  });
}
