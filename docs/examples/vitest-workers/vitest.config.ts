import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    globalSetup: 'setup.ts',
    include: ['*.test.ts'],
    // Four files at once, each in a process of its own; `--pool threads` works as well.
    pool: 'forks',
    maxWorkers: 4,
    testTimeout: 30_000,
    // As in `node_modules`, where the link in this repository does not lead.
    server: { deps: { external: [/bindings-js\/.*\/dist\//] } },
  },
});
