// Keys as text, much like their JavaScript notation.
import { isBytes } from '../base/bytes.ts';

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join(' ');
}

export function keyText(key: unknown): string {
  if (typeof key === 'bigint') return `${key}n`;
  if (key instanceof Date) return Number.isNaN(key.getTime()) ? 'invalid date' : key.toISOString();
  if (isBytes(key)) return toHex(key);
  if (Array.isArray(key)) return `[${key.map(keyText).join(', ')}]`;
  return typeof key === 'string' ? JSON.stringify(key) : String(key);
}
