import { cpSync } from 'node:fs';
import { resolve } from 'node:path';
import webpack from 'webpack';

webpack(
  { mode: 'production', entry: './main.js', performance: false, output: { path: resolve('out') } },
  (error, stats) => {
    if (error) throw error;
    if (stats.hasErrors() || stats.hasWarnings()) throw new Error(stats.toString('errors-warnings'));
  },
);
cpSync('index.html', 'out/index.html');
