// The package's worker, with faults to order.
import './faults.ts';
import 'mangrove-kv/worker';
