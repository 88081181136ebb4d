import { PGlite } from '@electric-sql/pglite';
import { worker } from '@electric-sql/pglite/worker';

await worker({
  init: ({ dataDir, relaxedDurability }) =>
    PGlite.create({ ...(dataDir === undefined ? {} : { dataDir }), relaxedDurability: relaxedDurability ?? false }),
});
