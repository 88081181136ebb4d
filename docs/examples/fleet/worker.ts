// One process of the fleet: `worker.ts <path> <name> <server> <database> <processes>`. It may be
// killed at any time and continues when it is started again.
import { open } from 'mangrove-kv';
import { replicate } from '@mangrove-kv/replication';
import type { StrictTransaction } from '@mangrove-kv/replication';
import { natsLog } from '@mangrove-kv/replication-nats';
import { FIRST_BALANCE, OWNERS, TRANSFERS, bankOf, collections } from './bank.ts';
import type { Account } from './bank.ts';

const [path, name, server, database, processes] = process.argv.slice(2) as [string, string, string, string, string];
const db = await open(path, { feed: true });
const replication = await replicate(db, { log: natsLog({ servers: server, database, device: name }), collections });
const { accounts, transfers } = bankOf(db);
// Replication keeps no process alive while it waits for the log.
const alive = setInterval(() => undefined, 1000);

const codeOf = (error: unknown): string | undefined => (error as { readonly code?: string }).code;

/** Runs again when others wrote all the time; each run begins with what they have written. */
async function strictly(fn: (tx: StrictTransaction) => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await replication.transaction(fn);
    } catch (error) {
      if (codeOf(error) !== 'KV_CONFLICT') throw error;
    }
  }
}

for (const owner of OWNERS) {
  try {
    await strictly(async (tx) => {
      const id = `${name} ${owner}`;
      if (!(await tx.collection(accounts).has(id)))
        await tx.collection(accounts).set(id, { owner, balance: FIRST_BALANCE });
    });
  } catch (error) {
    // Another process has opened the account.
    if (codeOf(error) !== 'KV_UNIQUE') throw error;
  }
}

const ids = await accounts.keys().toArray();
for (let nth = 0; nth < TRANSFERS; nth++) {
  const id = `${name} ${String(nth).padStart(3, '0')}`;
  const first = Math.floor(Math.random() * ids.length);
  const [from, to] = [ids[first], ids[(first + 1 + Math.floor(Math.random() * (ids.length - 1))) % ids.length]] as [
    string,
    string,
  ];
  const wanted = 1 + Math.floor(Math.random() * 500);
  await strictly(async (tx) => {
    // Made before this process was killed: the transfer is there if and only if the money has moved.
    if (await tx.collection(transfers).has(id)) return;
    const [payer, payee] = (await tx.collection(accounts).getMany([from, to])) as [Account, Account];
    const amount = Math.min(wanted, payer.balance);
    await tx.collection(accounts).set(from, { ...payer, balance: payer.balance - amount });
    await tx.collection(accounts).set(to, { ...payee, balance: payee.balance + amount });
    await tx.collection(transfers).set(id, { from, to, amount });
  });
  console.log(`${name}: transfer ${nth + 1} of ${TRANSFERS}`);
}

// Until the transfers of all processes have arrived.
while ((await transfers.size) < Number(processes) * TRANSFERS)
  await new Promise((resolve) => {
    setTimeout(resolve, 50);
  });
const sum = (await accounts.values().toArray()).reduce((total, { balance }) => total + balance, 0);
console.log(`${name}: ${await accounts.size} accounts with ${sum}, ${await transfers.size} transfers`);
clearInterval(alive);
await replication.close();
await db.close();
