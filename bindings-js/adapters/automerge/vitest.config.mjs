export default { test: { include: ['test/*.suite.ts'] } };
