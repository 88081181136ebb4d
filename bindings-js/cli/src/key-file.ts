// Keys of encrypted databases, which stand in files: arguments can be seen by other users of the machine, and stay in the shell's history.
import { Buffer } from 'node:buffer';
import * as fs from 'node:fs';
import type { EncryptionKey, EncryptionPassphrase } from 'mangrove-kv';
import { attempt, invalid } from './failure.ts';

const KEY_BYTES = 32;
const MAX_FILE_BYTES = 1 << 16;
const LINE_END = /\r?\n$/;

export function readSmallFile(file: string): Uint8Array {
  const bytes = attempt(`reading ${file}`, () => fs.readFileSync(file));
  if (bytes.length > MAX_FILE_BYTES) throw invalid(`the file ${file} is larger than what it should hold`);
  return bytes;
}

export function readText(file: string): string {
  return new TextDecoder().decode(readSmallFile(file)).replace(LINE_END, '');
}

/** A key of one of these lengths, as bytes or as hexadecimal digits. */
export function readKeyBytes(file: string, lengths: readonly number[]): Uint8Array<ArrayBuffer> {
  const bytes = readSmallFile(file);
  if (lengths.includes(bytes.length)) return Uint8Array.from(bytes);
  const digits = new TextDecoder().decode(bytes).replace(LINE_END, '');
  if (/^[\da-f]*$/i.test(digits) && lengths.includes(digits.length / 2))
    return Uint8Array.from(Buffer.from(digits, 'hex'));
  throw invalid(
    `${file} holds no key: it has to have ${lengths.join(' or ')} bytes, or twice as many hexadecimal digits`,
  );
}

export const readKey = (file: string): EncryptionKey => ({ key: readKeyBytes(file, [KEY_BYTES]) });

/** A line end after it is not part of it. */
export function readPassphrase(
  file: string,
  cost: { readonly memoryKiB?: number; readonly passes?: number } = {},
): EncryptionPassphrase {
  let passphrase: string;
  try {
    passphrase = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
      .decode(readSmallFile(file))
      .replace(LINE_END, '');
  } catch (error) {
    if (error instanceof TypeError) throw invalid(`${file} holds no passphrase: it is not UTF-8`);
    throw error;
  }
  if (passphrase === '') throw invalid(`${file} holds no passphrase: it is empty`);
  return { passphrase, ...cost };
}
