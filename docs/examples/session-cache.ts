// Sessions that end an hour after their last use. No code has to look for expired ones: an expired
// entry is invisible at once.
import { KEEP, keyCodecs, open } from 'mangrove-kv';

interface Session {
  readonly user: string;
  readonly visits: number;
}

const HOUR_MS = 3_600_000;

// A power cut may lose the last tenth of a second, which costs a login; in return no request
// flushes.
const db = await open(process.argv[2] ?? 'example-sessions', { durability: 'relaxed' });
const sessions = db.collection<string, Session>('sessions', { key: keyCodecs.string, expireIn: HOUR_MS });

// Frees the space of expired sessions.
setInterval(() => void db.purgeExpired(), HOUR_MS).unref();

async function login(user: string): Promise<string> {
  const id = crypto.randomUUID();
  await sessions.set(id, { user, visits: 0 });
  return id;
}

/**
 * Returns the session and extends it by an hour; undefined if it has ended. Never revives a session
 * that was logged out in the meantime.
 */
function visit(id: string): Promise<Session | undefined> {
  return sessions.update(id, (session) => (session === undefined ? KEEP : { ...session, visits: session.visits + 1 }));
}

const id = await login('ada');
await visit(id);
console.log(`visits: ${(await visit(id))?.visits}`);
console.log(
  `ends in ${Math.ceil(((await sessions.getEntry(id))?.expiresAt ?? 0) / 60_000 - Date.now() / 60_000)} minutes`,
);

await sessions.set('old', { user: 'grace', visits: 7 }, { expireAt: Date.now() - 1 });
console.log('an expired one:', await visit('old'));
await sessions.delete(id);
console.log('after the logout:', await visit(id), await sessions.size);
await db.close();
