// For the test suites of other packages that are written for vitest; our own tests run under the test runners of each host.
export default { test: { include: ['test/adapters/*.suite.ts'] } };
