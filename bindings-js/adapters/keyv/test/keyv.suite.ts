// The test suite that Keyv publishes for storage adapters, run by vitest.
import keyvTestSuite, { keyvIteratorTests } from '@keyv/test-suite';
import Keyv from 'keyv';
import { keyCodecs, open } from 'mangrove-kv';
import { KeyvMangrove } from '@mangrove-kv/keyv';
import * as vitest from 'vitest';

const db = await open('test', { storage: 'memory' });
vitest.afterAll(() => db.close());
const store = (): KeyvMangrove => new KeyvMangrove(db.collection<string, unknown>('cache', { key: keyCodecs.string }));

keyvTestSuite(vitest, Keyv, store);
keyvIteratorTests(vitest, Keyv, store);
