import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    globals: true,
    testTimeout: 60_000,
    // As in `node_modules`, where the link in this repository does not lead.
    server: { deps: { external: [/bindings-js\/.*\/dist\//] } },
    projects: ['node', 'jsdom'].map((environment) => ({
      extends: true,
      test: { name: environment, environment, include: ['cases/*.test.mjs'] },
    })),
  },
});
