// Folders of databases.
import { KvError } from 'mangrove-kv';

/** The database's name as one part of a path: other characters than letters, digits, `-` and `_` become `=` and two hex digits for each byte. */
export function databaseFolder(name: string): string {
  if (typeof name !== 'string' || name === '')
    throw new KvError('KV_INVALID_ARGUMENT', 'database has to be the name of a database, which is not empty');
  const token = [...new TextEncoder().encode(name)]
    .map((byte) => {
      const char = String.fromCharCode(byte);
      return /[A-Za-z0-9_-]/.test(char) ? char : `=${byte.toString(16).padStart(2, '0')}`;
    })
    .join('');
  if (token.length > 500)
    throw new KvError('KV_INVALID_ARGUMENT', `the database's name is too long for a key: ${name}`);
  return `database/${token}/`;
}
