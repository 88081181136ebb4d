import Database from 'better-sqlite3';
import { open as openTable, openIndexed as openRows } from './sqlite.mjs';

export const open = (directory, options) => openTable(directory, options, (path) => new Database(path));
export const openIndexed = (directory, options) => openRows(directory, options, (path) => new Database(path));
