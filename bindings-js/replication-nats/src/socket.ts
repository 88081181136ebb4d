// A WebSocket that always tells that it is closed: the client waits for that before it connects again.
import { Event } from 'mangrove-kv/internal';

/** Milliseconds that a server has to answer when a connection is being closed. */
const CLOSING_TIME = 1000;

/**
 * Opens a WebSocket. It sends `close` even if the server does not answer, and in Node if it was closed
 * before it was open, which sends only `error`.
 */
export async function openSocket(url: string): Promise<{ readonly socket: WebSocket; readonly encrypted: boolean }> {
  const socket = new WebSocket(url);
  const close = socket.close.bind(socket);
  let timer: ReturnType<typeof setTimeout> | undefined;
  socket.close = (code, reason) => {
    // Nobody answers a connection that is not open.
    timer ??= setTimeout(
      () => {
        socket.dispatchEvent(Object.assign(new Event('close'), { wasClean: false, code: 1006, reason: '' }));
      },
      socket.readyState === WebSocket.OPEN ? CLOSING_TIME : 0,
    );
    close(code, reason);
  };
  socket.addEventListener('close', () => clearTimeout(timer));
  return { socket, encrypted: url.startsWith('wss://') };
}
