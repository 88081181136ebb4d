// A random message of a page.
import { kinds } from './operations.ts';
import type { Kind } from './operations.ts';
import type { Page } from './page.ts';
import type { Random } from './random.ts';

export function ask(page: Page, random: Random): void {
  const what: (Kind | { kind: Kind; handle: number })[] = [];
  const handles = [...page.snapshots.keys()];
  for (let count = 1 + random.below(3); count > 0; count--) {
    const kind = random.pick([
      kinds.append,
      kinds.append,
      kinds.increment,
      kinds.read,
      kinds.openSnapshot,
      kinds.readSnapshot,
      kinds.readSnapshot,
      kinds.closeSnapshot,
      kinds.follow,
    ]);
    if (kind === kinds.readSnapshot || kind === kinds.closeSnapshot) {
      if (handles.length > 0) what.push({ kind, handle: random.pick(handles) });
    } else {
      what.push(kind);
    }
  }
  if (what.length > 0) page.push(...what);
}
