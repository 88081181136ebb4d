// PouchDB's own server: `node server.cjs <directory>`; prints its port.
const express = require('express');
const serve = require('express-pouchdb');
const PouchDB = require('pouchdb');

const directory = process.argv[2];
const app = express();
app.use(
  '/',
  serve(PouchDB.defaults({ prefix: `${directory}/` }), {
    mode: 'minimumForPouchDB',
    inMemoryConfig: true,
    logPath: `${directory}/log.txt`,
  }),
);
const server = app.listen(0, '127.0.0.1', () => process.stdout.write(`${server.address().port}\n`));
