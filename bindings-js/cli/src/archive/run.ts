// The verbs that need the network. They are loaded only when one is called.
import { print } from '../output.ts';
import { archive } from './archive.ts';
import { ARCHIVE_HELP, RESTORE_HELP, toArchiveArguments, toRestoreArguments } from './arguments.ts';
import { restore } from './restore.ts';

/** Runs a verb with the arguments after it. */
export async function run(verb: 'archive' | 'restore', args: readonly string[]): Promise<void> {
  if (verb === 'archive') {
    const parsed = await toArchiveArguments(args);
    if (parsed === undefined) print(ARCHIVE_HELP.trimEnd());
    else await archive(parsed);
  } else {
    const parsed = await toRestoreArguments(args);
    if (parsed === undefined) print(RESTORE_HELP.trimEnd());
    else await restore(parsed);
  }
}
