// Validates values against the schema of their collection before they are written.
import { KvError } from '../base/errors.ts';
import type { SchemaIssue, SchemaResult, StandardSchema } from '../types/collection.ts';
import { ignore } from '../base/async.ts';
import type { Validate } from '../wire/contracts.ts';

interface Validated<V> {
  readonly validate: Validate<V> | undefined;
}

export function toValidate<I, V>(schema: StandardSchema<I, V> | undefined): Validate<V> | undefined {
  if (schema === undefined) return undefined;
  const standard = schema?.['~standard'];
  if (standard?.version !== 1 || typeof standard.validate !== 'function') {
    throw new KvError('KV_INVALID_ARGUMENT', 'schema has to follow version 1 of Standard Schema');
  }
  return (value) => {
    let result;
    try {
      result = standard.validate(value);
    } catch (error) {
      throw failed(error);
    }
    return isPromise(result)
      ? Promise.resolve(result)
          .catch((error) => {
            throw failed(error);
          })
          .then(toOutput)
      : toOutput(result);
  };
}

export function isPromise<T>(value: T | Promise<T>): value is Promise<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

function toOutput<V>(result: SchemaResult<V>): V {
  const { issues } = result;
  if (issues === undefined) return result.value;
  const [first] = issues;
  throw new KvError('KV_INVALID_VALUE', `the value does not fit the schema: ${describe(first)}`, { cause: issues });
}

function describe(issue: SchemaIssue | undefined): string {
  const path = issue?.path?.map((part) => String(typeof part === 'object' ? part.key : part)).join('.');
  return `${path ? `${path}: ` : ''}${issue?.message ?? 'it says nothing more'}`;
}

function failed(cause: unknown): KvError {
  return new KvError('KV_INVALID_VALUE', 'the schema threw instead of returning issues', { cause });
}

export function validNow<V>({ validate }: Validated<V>, value: unknown): V {
  if (validate === undefined) return value as V;
  const valid = validate(value);
  if (!isPromise(valid)) return valid;
  valid.catch(ignore);
  throw new KvError('KV_SYNC_UNAVAILABLE', 'the schema validates asynchronously; use the asynchronous API');
}
