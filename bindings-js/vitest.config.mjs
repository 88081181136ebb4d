// For the test suites of other packages that are written for vitest, and the one of our own for Keyv 6; other tests run under the test runners of each host.
export default { test: { include: ['test/adapters/*.suite.ts'] } };
