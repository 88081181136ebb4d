import { DatabaseSync } from 'node:sqlite';
import { open as openTable } from './sqlite.mjs';

export const open = (directory, options) => openTable(directory, options, (path) => new DatabaseSync(path));
