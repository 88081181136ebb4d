import { build } from 'vite';

await build({ logLevel: 'warn', configFile: false, build: { outDir: 'out' } });
