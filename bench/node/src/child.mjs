// One stage of one workload with one engine, in a process of its own; the answer goes to the parent.
import { ENGINES } from './engines/index.mjs';
import { STAGES } from './stages/index.mjs';

const { engine, stage, ...options } = JSON.parse(process.argv[2]);
let answer;
try {
  const { open, openIndexed } = await ENGINES[engine].load();
  answer = { figures: await STAGES[stage]({ open, openIndexed, ...options }) };
} catch (error) {
  // Their messages have paths in them, and no more to say.
  const known = {
    ERR_MODULE_NOT_FOUND: 'it is not installed',
    ERR_DLOPEN_FAILED: 'it was built for another Node or machine',
  };
  answer = { error: known[error.code] ?? String(error.message ?? error).split('\n')[0] };
}
process.send(answer, () => process.disconnect());
