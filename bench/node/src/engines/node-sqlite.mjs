import { DatabaseSync } from 'node:sqlite';
import { open as openTable, openIndexed as openRows } from './sqlite.mjs';

export const open = (directory, options) => openTable(directory, options, (path) => new DatabaseSync(path));
export const openIndexed = (directory, options) => openRows(directory, options, (path) => new DatabaseSync(path));
