// A worker of a cluster that listens in a directory as soon as it is told.
import * as fs from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { NodeMachine } from '../../src/processes/node-machine.ts';

process.on('message', (directory: string) => {
  void new NodeMachine(directory, false)
    .listen(() => undefined)
    .then(() => fs.writeFileSync(join(directory, 'listens'), ''));
});
process.send?.('ready');
