// Makes the page work offline, and asks the browser to keep its data.
import { persist } from 'mangrove-kv';

// Without this, a browser that runs out of space may remove the site's data. Some ask the user, so not before there is any.
document.querySelector('form')?.addEventListener('submit', () => void persist(), { once: true });

// The development server has no service worker: it would serve old files.
if (import.meta.env.PROD && 'serviceWorker' in navigator) {
  await navigator.serviceWorker.register(`${import.meta.env.BASE_URL}service-worker.js`);
  // Resolves when all files are stored.
  await navigator.serviceWorker.ready;
  document.querySelector<HTMLElement>('#offline')?.removeAttribute('hidden');
}
