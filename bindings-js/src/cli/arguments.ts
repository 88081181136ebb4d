// The command line, read by what each verb takes.
import { parseArgs } from 'node:util';
import { UsageError } from './failure.ts';

/** A verb's options: what stands for their value in the usage, or false where they take none. */
export type Options = Readonly<Record<string, string | false>>;

export interface Usage {
  readonly verb: string;
  readonly about: string;
  readonly positionals: readonly string[];
  /** So many of the positionals have to be there. */
  readonly required: number;
  readonly options: Options;
  readonly help?: string;
}

export interface Parsed {
  readonly positionals: readonly string[];
  text(name: string): string | undefined;
  flag(name: string): boolean;
  /** A whole number from `min` to `max`. */
  count(name: string, initial: number, min?: number, max?: number): number;
}

export const PROGRAM = 'mangrove-kv';

export function usageOf({ verb, positionals, required, options }: Usage): string {
  const names = positionals.map((name, index) => index < required ? `<${name}>` : `[${name}]`);
  const flags = Object.keys(options).length > 0 ? ['[OPTIONS]'] : [];
  return `Usage: ${[PROGRAM, verb, ...flags, ...names].join(' ')}`;
}

export function helpOf(usage: Usage): string {
  const options = Object.entries(usage.options).map(([name, value]) => `  --${name}${value === false ? '' : ` <${value}>`}`);
  const parts = [usage.about, usageOf(usage), ...(options.length > 0 ? [`Options:\n${options.join('\n')}`] : []), ...(usage.help === undefined ? [] : [usage.help])];
  return parts.join('\n\n');
}

/** Keys and values may be negative numbers, which look like options. */
const NEGATIVE = /^-[\d.]/;
const HELD = '\0';

function hold(args: readonly string[], options: Options): string[] {
  const held: string[] = [];
  for (let at = 0; at < args.length; at++) {
    const arg = args[at] as string;
    const next = args[at + 1];
    const takesValue = arg.startsWith('--') && typeof options[arg.slice(2)] === 'string';
    if (takesValue && next !== undefined && NEGATIVE.test(next)) {
      held.push(`${arg}=${next}`);
      at++;
    } else {
      held.push(NEGATIVE.test(arg) ? HELD + arg : arg);
    }
  }
  return held;
}

export function parseArguments(usage: Usage, args: readonly string[]): Parsed {
  const { options, required } = usage;
  const wrong = (message: string): never => {
    throw new UsageError(`error: ${message}\n\n${usageOf(usage)}`);
  };
  const types = Object.entries(options).map(([name, value]) => [name, { type: value === false ? 'boolean' : 'string', multiple: true }] as const);
  let parsed;
  try {
    parsed = parseArgs({ args: hold(args, options), options: Object.fromEntries(types), allowPositionals: true, strict: true });
  } catch (error) {
    return wrong((error as Error).message);
  }
  const positionals = parsed.positionals.map((text) => text.startsWith(HELD) ? text.slice(HELD.length) : text);
  if (positionals.length < required) wrong(`the argument ${usage.positionals[positionals.length]} is missing`);
  if (positionals.length > usage.positionals.length) wrong(`unexpected argument ${positionals[usage.positionals.length]}`);
  const values = parsed.values as Readonly<Record<string, readonly (string | boolean)[] | undefined>>;
  for (const [name, given] of Object.entries(values)) if ((given?.length ?? 0) > 1) wrong(`--${name} is there twice`);
  const text = (name: string): string | undefined => values[name]?.[0] as string | undefined;
  return {
    positionals,
    text,
    flag: (name) => values[name] !== undefined,
    count(name, initial, min = 0, max = Number.MAX_SAFE_INTEGER) {
      const given = text(name);
      if (given === undefined) return initial;
      const count = /^\d+$/.test(given) ? Number(given) : Number.NaN;
      return count >= min && count <= max ? count : wrong(`--${name} has to be a whole number from ${min} to ${max}, not ${given}`);
    },
  };
}
