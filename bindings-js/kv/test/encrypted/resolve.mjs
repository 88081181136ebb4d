const WRAPPER = new URL('./mangrove-kv.mjs', import.meta.url).href;

export function resolve(specifier, context, next) {
  return specifier === 'mangrove-kv' && context.parentURL !== WRAPPER
    ? { url: WRAPPER, shortCircuit: true }
    : next(specifier, context);
}
