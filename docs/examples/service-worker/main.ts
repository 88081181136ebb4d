const button = document.querySelector('button') as HTMLButtonElement;
const output = document.querySelector('output') as HTMLOutputElement;

button.onclick = async () => {
  const response = await fetch('/api/quote.json');
  output.value = `${((await response.json()) as { text: string }).text} (${response.headers.get('x-from') ?? 'network'})`;
};

await navigator.serviceWorker.register('/service-worker.js', { type: 'module' });
await navigator.serviceWorker.ready;
if (navigator.serviceWorker.controller === null) {
  await new Promise<void>((resolve) => {
    navigator.serviceWorker.oncontrollerchange = () => resolve();
  });
}
button.disabled = false;
