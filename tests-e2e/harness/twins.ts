// The twins of idb-keyval and localForage beside the libraries themselves, and the cases that both pass.
import * as idbKeyval from 'idb-keyval';
import localforage from 'localforage';
import * as keyvalTwin from '@mangrove-kv/idb-keyval';
import forageTwin, { close } from '@mangrove-kv/localforage';
import { cases as keyvalCases } from '../../bindings-js/adapters/idb-keyval/test/support/suite.ts';
import { cases as forageCases } from '../../bindings-js/adapters/localforage/test/support/suite.ts';
import { runCases, show } from '../../bindings-js/migrate/test/support/show.ts';

type Outcome = ReturnType<typeof runCases>;

/** Runs the cases of a library on it or on its twin. */
export const suites: Record<string, () => Outcome> = {
  'idb-keyval': () => runCases(keyvalCases, idbKeyval),
  '@mangrove-kv/idb-keyval': () => runCases(keyvalCases, keyvalTwin),
  localforage: () => runCases(forageCases, { localforage, settings: {} }),
  '@mangrove-kv/localforage': () => runCases(forageCases, { localforage: forageTwin, settings: {}, close }),
};

export { forageTwin, idbKeyval, keyvalTwin, localforage, show };
