// The page as an app: installation, offline use, and new versions, which wait until the visitor
// agrees or the last tab is closed.
import { element } from '../dom.ts';

interface InstallPrompt extends Event {
  prompt(): Promise<unknown>;
}

function offerInstallation(): void {
  const button = element<HTMLButtonElement>('install');
  let prompt: InstallPrompt | undefined;
  addEventListener('beforeinstallprompt', (event) => {
    event.preventDefault();
    prompt = event as InstallPrompt;
    button.hidden = false;
  });
  addEventListener('appinstalled', () => {
    button.hidden = true;
  });
  button.addEventListener('click', () => {
    button.hidden = true;
    void prompt?.prompt();
  });
}

function showConnection(): void {
  const badge = element('offline');
  const show = (): void => {
    badge.hidden = navigator.onLine;
  };
  addEventListener('online', show);
  addEventListener('offline', show);
  show();
}

function offerUpdate(worker: ServiceWorker): void {
  const bar = element('update');
  bar.hidden = false;
  (bar.querySelector('[data-testid="update-now"]') as HTMLElement).onclick = () => {
    // Only this tab reloads. The others keep their version, whose files the new worker still
    // serves.
    navigator.serviceWorker.addEventListener('controllerchange', () => location.reload(), { once: true });
    worker.postMessage('activate');
  };
  (bar.querySelector('[data-testid="update-later"]') as HTMLElement).onclick = () => {
    bar.hidden = true;
  };
}

async function registerWorker(): Promise<void> {
  const registration = await navigator.serviceWorker.register(new URL('service-worker.js', document.baseURI));
  const watch = (worker: ServiceWorker | null): void => {
    worker?.addEventListener('statechange', () => {
      if (worker.state === 'installed' && navigator.serviceWorker.controller !== null) offerUpdate(worker);
    });
  };
  if (registration.waiting !== null && navigator.serviceWorker.controller !== null) offerUpdate(registration.waiting);
  watch(registration.installing);
  registration.addEventListener('updatefound', () => watch(registration.installing));
}

export function startPwa(): void {
  offerInstallation();
  showConnection();
  // The development server has no precache.
  if (!import.meta.env.PROD || !('serviceWorker' in navigator)) return;
  const register = (): void => {
    // Without it the page works, but not offline.
    registerWorker().catch((error: unknown) => console.warn('no service worker:', error));
  };
  if (document.readyState === 'complete') register();
  else addEventListener('load', register, { once: true });
}
