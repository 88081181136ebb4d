// The dialog that adds, changes or deletes a city.
import type { City } from '../cities.ts';
import { element } from '../dom.ts';

export interface EditorActions {
  save(city: City): Promise<void>;
  /** Absent for a new city. */
  delete?: () => Promise<void>;
}

const dialog = (): HTMLDialogElement => element<HTMLDialogElement>('editor');
const form = (): HTMLFormElement => element<HTMLFormElement>('editor-form');
const problem = (): HTMLElement => form().querySelector('.wrong') as HTMLElement;

let actions: EditorActions | undefined;
let original: City | undefined;

function field(name: string): HTMLInputElement {
  return form().elements.namedItem(name) as HTMLInputElement;
}

async function run(action: () => Promise<void>): Promise<void> {
  const mine = actions;
  try {
    await action();
    // The dialog may have been closed and reopened for another city meanwhile.
    if (actions === mine) dialog().close();
  } catch (error) {
    problem().textContent = error instanceof Error ? error.message : String(error);
  }
}

/** Attaches the dialog's listeners; call once the dialog is on the page. */
export function prepareEditor(): void {
  form().addEventListener('submit', (event) => {
    event.preventDefault();
    const population = field('population').valueAsNumber;
    const city: City = {
      name: field('name').value.trim(),
      country: field('country').value.toUpperCase(),
      admin1: original?.admin1 ?? '',
      lat: field('lat').valueAsNumber,
      lng: field('lng').valueAsNumber,
      ...(Number.isNaN(population) ? {} : { population }),
    };
    void run(async () => actions?.save(city));
  });
  element('editor-delete').addEventListener('click', () => void run(async () => actions?.delete?.()));
  element('editor-cancel').addEventListener('click', () => dialog().close());
}

export function openEditor(city: City | undefined, then: EditorActions): void {
  actions = then;
  original = city;
  problem().textContent = '';
  element('editor-title').textContent = city === undefined ? 'New city' : city.name;
  element('editor-delete').hidden = then.delete === undefined;
  field('name').value = city?.name ?? '';
  field('country').value = city?.country ?? '';
  field('population').value = String(city?.population ?? '');
  field('lat').value = String(city?.lat ?? '');
  field('lng').value = String(city?.lng ?? '');
  dialog().showModal();
}
