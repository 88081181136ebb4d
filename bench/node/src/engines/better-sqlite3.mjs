import Database from 'better-sqlite3';
import { open as openTable } from './sqlite.mjs';

export const open = (directory, options) => openTable(directory, options, (path) => new Database(path));
