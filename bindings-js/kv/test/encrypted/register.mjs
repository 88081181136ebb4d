// Lets tests import the package with a key for every database: `node --import ./test/encrypted/register.mjs --test …`.
import { register } from 'node:module';

register('./resolve.mjs', import.meta.url);
