import { report } from './app.js';

report();
