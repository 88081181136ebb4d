// The package's worker with fault injection.
import './faults.ts';
import 'mangrove-kv/assets/worker.js';
