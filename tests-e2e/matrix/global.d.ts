declare module '/kv/index.js' {
  export * from 'mangrove-kv';
}
declare module '/kv/inline.js' {
  export * from 'mangrove-kv';
}
