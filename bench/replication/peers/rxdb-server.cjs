// A server for RxDB's WebSocket replication, with a database in memory: `node rxdb-server.cjs <schema>`;
// prints its port.
const { createRxDatabase } = require('rxdb');
const { startWebsocketServer } = require('rxdb/plugins/replication-websocket');
const { getRxStorageMemory } = require('rxdb/plugins/storage-memory');

async function start(schema) {
  const database = await createRxDatabase({ name: 'server', storage: getRxStorageMemory(), multiInstance: false });
  await database.addCollections({ notes: { schema } });
  const { server } = startWebsocketServer({ database, port: 0, host: '127.0.0.1' });
  if (server.address() === null) await new Promise((resolve) => server.once('listening', resolve));
  process.stdout.write(`${server.address().port}\n`);
}

start(JSON.parse(process.argv[2]));
