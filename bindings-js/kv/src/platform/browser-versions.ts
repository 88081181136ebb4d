// The browser entry loads this module only if `open` asks for a schema version.
export { settle } from '../api/versions.ts';
