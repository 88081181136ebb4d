// Shows a short message at the bottom, with an optional undo button.
import { element } from '../dom.ts';

const SHOWN_MS = 8000;
let timer: ReturnType<typeof setTimeout> | undefined;

export function say(text: string, undo?: () => void): void {
  const toast = element('toast');
  const button = toast.querySelector('button') as HTMLButtonElement;
  (toast.querySelector('span') as HTMLElement).textContent = text;
  button.hidden = undo === undefined;
  button.onclick = () => {
    toast.hidden = true;
    undo?.();
  };
  toast.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => {
    toast.hidden = true;
  }, SHOWN_MS);
}
