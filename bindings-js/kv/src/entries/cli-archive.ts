// The verbs of the command line tool that need the network. They are loaded only when one is called.
import { archive } from '../cli/archive/archive.ts';
import { ARCHIVE_HELP, RESTORE_HELP, toArchiveArguments, toRestoreArguments } from '../cli/archive/arguments.ts';
import { note, print } from '../cli/archive/output.ts';
import { restore } from '../cli/archive/restore.ts';

const EXIT_FAILURE = 1;
const EXIT_DAMAGE = 2;

/** Runs a verb with the arguments after it; resolves to the exit code. */
export async function run(verb: 'archive' | 'restore', args: readonly string[]): Promise<number> {
  try {
    if (verb === 'archive') {
      const parsed = await toArchiveArguments(args);
      if (parsed === undefined) print(ARCHIVE_HELP.trimEnd());
      else await archive(parsed);
    } else {
      const parsed = await toRestoreArguments(args);
      if (parsed === undefined) print(RESTORE_HELP.trimEnd());
      else await restore(parsed);
    }
    return 0;
  } catch (error) {
    const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
    const isKnown = typeof code === 'string' && code.startsWith('KV_');
    note(`mangrove: ${isKnown ? code : 'KV_IO'}: ${String(message ?? error).replaceAll(/[\n\r]+/g, ' ')}`);
    return code === 'KV_CORRUPT' ? EXIT_DAMAGE : EXIT_FAILURE;
  }
}
