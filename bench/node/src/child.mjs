// One stage of one workload with one engine, in a process of its own; the answer goes to the parent.
import { ENGINES } from './engines/index.mjs';
import { STAGES } from './stages/index.mjs';

const { engine, stage, ...options } = JSON.parse(process.argv[2]);
let answer;
try {
  const { open } = await ENGINES[engine].load();
  answer = { figures: await STAGES[stage]({ open, ...options }) };
} catch (error) {
  const missing = error.code === 'ERR_MODULE_NOT_FOUND' || error.code === 'MODULE_NOT_FOUND';
  answer = { error: missing ? 'it is not installed' : String(error.message ?? error).split('\n')[0] };
}
process.send(answer, () => process.disconnect());
