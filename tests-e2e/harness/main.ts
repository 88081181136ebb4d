// Gives tests the package as a bundled page has it.
import * as mangrove from 'mangrove-kv';

window.mangrove = mangrove;
document.title = 'ready';
