const shared = { transform: {}, testMatch: ['<rootDir>/cases/*.test.mjs'] };

/** Jest resolves the package for browsers in jsdom, unless it is told otherwise. */
const jsdom = { testEnvironment: 'jsdom', testEnvironmentOptions: { customExportConditions: ['node', 'node-addons'] } };

export default {
  testTimeout: 60_000,
  projects: [
    { ...shared, displayName: 'node' },
    { ...shared, displayName: 'node, fake timers', fakeTimers: { enableGlobally: true } },
    { ...shared, displayName: 'jsdom', ...jsdom },
    { ...shared, displayName: 'jsdom, fake timers', ...jsdom, fakeTimers: { enableGlobally: true } },
  ],
};
