// Shows what went wrong and what the visitor can do, instead of a blank page.
import { element } from '../dom.ts';

const ADVICE: Readonly<Record<string, [title: string, advice: string]>> = {
  KV_LOCKED: [
    'In use elsewhere',
    'A tab that does not answer, or an older version of this page, has this database open. Close it, then try again.',
  ],
  KV_UNSUPPORTED: [
    'This browser cannot store files',
    'It offers no private file system here. Use a current browser over https or localhost, outside private windows.',
  ],
  KV_QUOTA_EXCEEDED: ['No space left', 'The last change was undone. Free some space on this device, then continue.'],
  KV_CORRUPT: ['The database is damaged', 'Its files were left unchanged. The message names the damaged place.'],
  KV_VERSION_UNSUPPORTED: ['Written by a newer version', 'Reload the page to get the current version.'],
};

export function showProblem(error: unknown, retry: () => void): void {
  const code = (error as { code?: string }).code ?? (error instanceof Error ? error.name : 'Error');
  const [title, advice] = ADVICE[code] ?? ['Something went wrong', 'Try again; if it happens again, reload the page.'];
  const panel = element('problem');
  const part = (name: string): HTMLElement => panel.querySelector(`[data-testid="problem-${name}"]`) as HTMLElement;
  part('title').textContent = title;
  part('text').textContent = advice;
  part('code').textContent = `${code}: ${error instanceof Error ? error.message : String(error)}`;
  panel.hidden = false;
  element('problem-retry').onclick = () => {
    panel.hidden = true;
    retry();
  };
}
