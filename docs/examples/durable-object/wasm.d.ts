declare module 'mangrove-kv/assets/mangrove_bg.wasm' {
  const module: WebAssembly.Module;
  export default module;
}
