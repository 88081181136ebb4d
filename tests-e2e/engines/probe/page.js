// The page's part of the probes: named workers, and the events and messages the page receives.
const workers = new Map();
let calls = 0;

window.start = (name) => {
  const worker = new Worker('/worker.js');
  const waiting = new Map();
  worker.onmessage = ({ data: { id, value, error } }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) resolve(value);
    else reject(new Error(error));
  };
  workers.set(name, { worker, waiting });
};

window.call = (name, command, argument = {}, transfer = []) => {
  if (!workers.has(name)) window.start(name);
  const { worker, waiting } = workers.get(name);
  return new Promise((resolve, reject) => {
    const id = ++calls;
    waiting.set(id, { resolve, reject });
    worker.postMessage({ id, command, argument }, transfer);
  });
};

window.end = (name) => {
  workers.get(name).worker.terminate();
  workers.delete(name);
  return Date.now();
};

/** Measures round trips between two workers of this page over a MessagePort. */
window.ports = async (rounds) => {
  const { port1, port2 } = new MessageChannel();
  await window.call('echo', 'echoPort', { port: port2 }, [port2]);
  return window.call('ping', 'pingPort', { port: port1, rounds }, [port1]);
};

/** Starts workers one by one, up to `most`, until one fails or stays silent for some seconds. */
window.countWorkers = (most) =>
  new Promise((resolve) => {
    const source = URL.createObjectURL(new Blob(['postMessage(0)'], { type: 'text/javascript' }));
    const made = [];
    let started = 0;
    let outcome = 'none';
    let timer;
    const finish = () => {
      clearTimeout(timer);
      for (const worker of made) worker.terminate();
      resolve({ started, asked: made.length, outcome });
    };
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        outcome = 'the next one never starts, and no event tells';
        finish();
      }, 15_000);
    };
    const next = () => {
      if (started === most) return finish();
      wait();
      try {
        const worker = new Worker(source);
        made.push(worker);
        worker.onmessage = () => {
          started++;
          next();
        };
        worker.onerror = (event) => {
          outcome = `error event: ${event.message}`;
          finish();
        };
      } catch (error) {
        outcome = String(error);
        finish();
      }
    };
    next();
  });

window.shows = [];
addEventListener('pageshow', ({ persisted }) => window.shows.push(persisted));
window.lifecycle = [];
for (const type of ['freeze', 'resume']) document.addEventListener(type, () => window.lifecycle.push(type));
window.listenInPage = (name) => {
  window.said = [];
  window.channel = new BroadcastChannel(name);
  window.channel.onmessage = ({ data }) => {
    if (data.say !== undefined) window.said.push(data.say);
  };
};
