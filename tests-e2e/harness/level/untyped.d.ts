// Types for modules that ship none.
declare module 'abstract-level/test' {
  const suite: import('../../../bindings-js/adapters/level/test/support/level-suite.ts').Suite;
  export default suite;
}
declare module 'tape' {
  const tape: import('../../../bindings-js/adapters/level/test/support/level-suite.ts').Tape;
  export default tape;
}
