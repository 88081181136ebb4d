// What happens to a server of objects, and to the way to it. Each fault ends by itself.
import type { Link, LinkState } from '../support/proxy.ts';
import type { S3Server } from '../support/s3.ts';
import { pause } from './world.ts';
import type { BucketAddress, Fault } from './world.ts';

export const addressOf = ({ options }: S3Server, link: Link, timeout: number): BucketAddress => ({
  endpoint: `http://127.0.0.1:${link.port}`,
  bucket: options.bucket,
  credentials: options.credentials as BucketAddress['credentials'],
  timeout,
});

export function bucketFaults(
  server: S3Server,
  link: Link,
): Readonly<Record<'kill' | 'flap' | 'stop' | 'cut' | 'silence' | 'deaf' | 'half', Fault>> {
  const blocked =
    (state: LinkState): Fault =>
    async (random) => {
      link.set(state);
      await pause(random.between(1000, 10_000));
      // Requests whose answers were lost end now.
      link.set('cut');
      link.set('open');
    };
  return {
    kill: async (random) => {
      await server.kill();
      await pause(random.between(0, 5000));
      await server.start();
    },
    /** Comes and goes faster than devices retry. */
    flap: async (random) => {
      for (let time = 0; time < 3; time++) {
        await server.kill();
        await server.start();
        await pause(random.between(100, 1000));
      }
    },
    stop: async (random) => {
      server.signal('SIGSTOP');
      await pause(random.between(1000, 12_000));
      server.signal('SIGCONT');
    },
    cut: blocked('cut'),
    silence: blocked('silent'),
    deaf: blocked('deaf'),
    /** Answers stop somewhere. */
    half: async (random) => {
      link.holdAnswers(random.below(20_000));
      await pause(random.between(1000, 6000));
      link.set('cut');
      link.releaseAnswers();
      link.set('open');
    },
  };
}

/** The disk of some seconds ago takes the place of what was written since. */
export const rollBack =
  (server: S3Server): Fault =>
  async (random) => {
    await server.kill();
    server.saveDisk();
    await server.start();
    await pause(random.between(4000, 10_000));
    await server.kill();
    server.restoreDisk();
    await server.start();
    await pause(5000);
  };
