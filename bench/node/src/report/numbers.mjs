export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  if (sorted.length === 0) return undefined;
  return (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.floor(sorted.length / 2)]) / 2;
}

/** With as many digits as tell something. */
export function short(value) {
  if (value === 0) return '0';
  if (value < 0) return `-${short(-value)}`;
  if (value >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

/** Rates are better when higher, everything else when lower. */
export function best(unit, values) {
  const known = values.filter((value) => value !== undefined);
  if (known.length === 0) return undefined;
  return unit === '/s' ? Math.max(...known) : Math.min(...known);
}
