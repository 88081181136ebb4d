// The streams of logs, as servers have to have them.
import { KvError } from 'mangrove-kv';
import { performance } from 'mangrove-kv/internal';
import { logUnavailable } from '@mangrove-kv/replication';
import type { Api } from './api.ts';
import { LIVE, manifestsOf, streamOf } from './names.ts';
import { pause } from './messages.ts';
import { apiError, toLogError } from './failures.ts';
import type { ApiFailure } from './failures.ts';

/** How the streams are. */
export interface StreamOptions {
  /** Over how many streams databases are spread. It cannot be changed later. Default: 1. */
  readonly shards?: number | undefined;
  /** How many servers have each record: 1 for a single server, otherwise 3 or 5. */
  readonly replicas: 1 | 3 | 5;
  /** Bytes after which a log takes no more records until it is purged. Default: as many as the disk has. */
  readonly maxBytes?: number | undefined;
}

/** Names of the fields are JetStream's. */
function configsOf(shard: number, { replicas, maxBytes = -1 }: StreamOptions): readonly Record<string, unknown>[] {
  const common = {
    retention: 'limits',
    storage: 'file',
    num_replicas: replicas,
    allow_direct: true,
    allow_rollup_hdrs: false,
    deny_delete: true,
    max_age: 0,
  };
  return [
    {
      ...common,
      name: streamOf(shard),
      subjects: [`oplog.${shard}.>`],
      discard: 'new',
      max_bytes: maxBytes,
      republish: {
        src: `oplog.${shard}.*.*`,
        dest: `${LIVE}oplog.${shard}.{{wildcard(1)}}.{{wildcard(2)}}`,
        headers_only: true,
      },
    },
    { ...common, name: manifestsOf(shard), subjects: [`manifest.${shard}.*`], discard: 'old', max_msgs_per_subject: 1 },
  ];
}

/** Creates the streams, or changes them to what is asked for; waits until the servers can. */
export async function makeStreams(api: Api, options: StreamOptions): Promise<void> {
  const { shards = 1, replicas } = options;
  if (![1, 3, 5].includes(replicas))
    throw new KvError('KV_INVALID_ARGUMENT', `replicas has to be 1, 3 or 5, not ${replicas}`);
  for (let shard = 0; shard < shards; shard++)
    for (const config of configsOf(shard, options)) await makeStream(api, config);
}

/** Milliseconds that servers have to elect a leader. */
const START_TIME = 30_000;
const NAME_IN_USE = 10058;

async function makeStream(api: Api, config: Record<string, unknown>): Promise<void> {
  const what = `creating the stream ${String(config['name'])}`;
  for (let end = performance.now() + START_TIME; ; ) {
    try {
      const reply = await api.tryCall<object>(`STREAM.CREATE.${String(config['name'])}`, config);
      if (!('error' in reply)) return;
      const { error } = reply as { readonly error: ApiFailure };
      if (error.err_code === NAME_IN_USE) {
        await api.call(`STREAM.UPDATE.${String(config['name'])}`, config, what);
        return;
      }
      throw apiError(error, what);
    } catch (error) {
      const failure = toLogError(error, what);
      // Servers that have just started elect a leader first.
      if (failure.code !== 'KV_LOG_UNAVAILABLE' || performance.now() > end)
        throw failure.code === 'KV_LOG_UNAVAILABLE' ? logUnavailable(failure.message, failure) : failure;
      await pause(200);
    }
  }
}
