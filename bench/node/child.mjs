// One stage of one workload with one engine, in a process of its own; the answer goes to the parent.
import { ENGINES } from './engines/index.mjs';
import { STAGES } from './stages/index.mjs';

const { engine, stage, ...options } = JSON.parse(process.argv[2]);
let answer;
try {
  const { open } = await ENGINES[engine].load();
  answer = { figures: await STAGES[stage]({ open, ...options }) };
} catch (error) {
  answer = { error: error instanceof Error ? error.message.split('\n')[0] : String(error) };
}
process.send(answer, () => process.disconnect());
