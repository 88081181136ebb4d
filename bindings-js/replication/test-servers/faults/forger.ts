// A device that sends what nobody has written, as an intruder on the servers would. Nothing of it may
// have an effect where records are sealed.
import { decodeRecord, encodeRecord } from '../../src/record.ts';
import type { LoggedRecord, RemoteLog } from '../../src/remote-log.ts';
import { Wire } from '../../src/wire.ts';
import type { Random } from './random.ts';
import { DATABASE } from './replica.ts';
import { pause } from './world.ts';

/** A record that no device has written, made of one that is in the log. */
async function forge(logged: LoggedRecord, random: Random, foreign: CryptoKey): Promise<Uint8Array> {
  const { header, body } = decodeRecord(logged.record);
  switch (random.below(5)) {
    case 0:
      return logged.record;
    case 1:
      return encodeRecord({ ...header, seq: header.seq + 1, back: 1 }, body);
    case 2:
      return encodeRecord({ ...header, device: header.device ^ 1n }, body);
    case 3:
      return new Wire(undefined).pack(0, { device: header.device, seq: header.seq + 1, back: 1 }, new Uint8Array([0]));
    default:
      return new Wire({ key: foreign, database: DATABASE }).pack(
        0,
        { device: header.device, seq: header.seq + 1, back: 1 },
        new Uint8Array([0]),
      );
  }
}

/** Forges until it is over; resolves to how many records it got into the log. */
export async function forgeRecords(log: RemoteLog, random: Random, isOver: () => boolean): Promise<number> {
  const foreign = await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, false, ['encrypt', 'decrypt']);
  let [position, forged, tries] = [0, 0, 0];
  const known: LoggedRecord[] = [];
  while (!isOver()) {
    await pause(random.between(300, 2000));
    try {
      for (let records = await log.read(position, 500); records.length > 0; records = await log.read(position, 500)) {
        known.push(...records);
        position = records.at(-1)?.position ?? position;
      }
      if (known.length === 0) continue;
      await log.append(await forge(random.of(known.slice(-200)), random, foreign), {
        idempotencyKey: `forger:${++tries}`,
      });
      forged++;
    } catch (error) {
      const { code } = error as { readonly code?: string };
      // What it reads was purged: it goes on with what is there.
      if (code === 'KV_LOG_TRUNCATED') position++;
      else if (code === undefined || !['KV_LOG_UNAVAILABLE', 'KV_LOG_REFUSED', 'KV_CORRUPT'].includes(code))
        throw error;
    }
  }
  return forged;
}
