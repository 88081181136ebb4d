// For other packages' test suites, which need vitest, and for our own of Keyv 6. All other tests
// run under the runtimes' own test runners.
export default { test: { include: ['test/adapters/*.suite.ts'] } };
