// The database of the fleet: accounts, and the transfers between them, both in strict mode.
import type { Collection, Database } from 'mangrove-kv';
import type { ReplicatedCollectionOptions } from '@mangrove-kv/replication';

export const OWNERS = ['ada', 'grace', 'joan', 'mary'];
export const FIRST_BALANCE = 1000;
/** Transfers of each process. */
export const TRANSFERS = 12;

export interface Account {
  readonly owner: string;
  readonly balance: number;
}
export interface Transfer {
  readonly from: string;
  readonly to: string;
  readonly amount: number;
}

/** No owner has two accounts, whichever process opens them. */
const indexes = { byOwner: { key: ({ owner }: Account) => owner, unique: true } };

export const collections: { readonly [name: string]: ReplicatedCollectionOptions } = {
  accounts: { mode: 'strict', indexes },
  transfers: { mode: 'strict' },
};

export interface Bank {
  readonly accounts: Collection<string, Account>;
  readonly transfers: Collection<string, Transfer>;
}

export const bankOf = (db: Database): Bank => ({
  accounts: db.collection('accounts', { indexes }),
  transfers: db.collection('transfers'),
});
