/**
 * For the drivers of this project, which are released together with this package: exempt from semantic versioning.
 *
 * @module @mangrove-kv/replication/internal
 */
export { ByteSink, ByteSource, concat, crc32c } from './bytes.ts';
export { inParallel } from './parallel.ts';
export { isTruncated } from './remote-log.ts';
