declare module 'mangrove-kv/mangrove_bg.wasm' {
  const module: WebAssembly.Module;
  export default module;
}
