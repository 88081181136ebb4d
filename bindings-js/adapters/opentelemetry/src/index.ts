/**
 * Spans of OpenTelemetry for the calls of Mangrove databases, in Node, Deno and Bun.
 *
 * @module @mangrove-kv/opentelemetry
 */
import { tracingChannel } from 'node:diagnostics_channel';
import { SpanKind, SpanStatusCode, context, trace } from '@opentelemetry/api';
import type { Attributes, MeterProvider, Span, Tracer, TracerProvider } from '@opentelemetry/api';
import { KvError } from 'mangrove-kv';
import type { CallTrace } from 'mangrove-kv';

const NAME = '@mangrove-kv/opentelemetry';
const VERSION = '0.1.0';

/** Options of `MangroveInstrumentation`. */
export interface MangroveInstrumentationConfig {
  /** Whether it begins with the constructor; if false, with `enable()`. Default: true. */
  enabled?: boolean | undefined;
  /** Record only calls that are made while a span is active. Default: false. */
  requireParentSpan?: boolean | undefined;
  /**
   * Record only the calls for which it returns true, for instance not those of a collection. It is called before
   * the call. If it throws, the call is not recorded. Default: all calls.
   */
  filter?: ((call: CallTrace) => boolean) | undefined;
}

type Config = MangroveInstrumentationConfig & { enabled: boolean };

const KNOWN = ['enabled', 'requireParentSpan', 'filter'];

function checkConfig(config: MangroveInstrumentationConfig): Config {
  const { enabled = true, requireParentSpan = false, filter } = config;
  const wrong = Object.keys(config).find((name) => !KNOWN.includes(name));
  if (wrong !== undefined)
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `unknown option "${wrong}" of MangroveInstrumentation; it takes ${KNOWN.join(', ')}`,
    );
  if (typeof enabled !== 'boolean' || typeof requireParentSpan !== 'boolean')
    throw new KvError('KV_INVALID_ARGUMENT', 'enabled and requireParentSpan have to be booleans');
  if (filter !== undefined && typeof filter !== 'function')
    throw new KvError('KV_INVALID_ARGUMENT', 'filter has to be a function');
  return { enabled, requireParentSpan, filter };
}

/** What the semantic conventions for databases say of a call before it is made. */
function attributesOf({ database, persistence, operation, collection, index, scope, count }: CallTrace): Attributes {
  return {
    'db.system.name': 'mangrove-kv',
    'db.namespace': database,
    'db.operation.name': operation,
    // The default collection has no name.
    ...(collection ? { 'db.collection.name': collection } : {}),
    // One operation is no batch.
    ...(count === undefined || count === 1 ? {} : { 'db.operation.batch.size': count }),
    ...(persistence === undefined ? {} : { 'mangrove_kv.persistence': persistence }),
    ...(index === undefined ? {} : { 'mangrove_kv.index': index }),
    ...(scope === 'database' ? {} : { 'mangrove_kv.scope': scope }),
  };
}

const ONE = ['get', 'getEntry', 'first', 'last', 'at'];

/** Number of entries that a read has returned. */
function rowsOf({ operation, items, result }: CallTrace): number | undefined {
  if (items !== undefined) return items;
  if (ONE.includes(operation)) return result === undefined ? 0 : 1;
  if (operation !== 'getMany' || !Array.isArray(result)) return undefined;
  return result.filter((value) => value !== undefined).length;
}

/**
 * Makes a span of each call of the databases that are opened while it is enabled, a child of the span that is
 * active when the call is made. While a call runs, its own span is active: that of a transaction in its callback, that
 * of `update` in its updater. Spans have the
 * attributes of the semantic conventions for databases, and no keys or values.
 *
 * It is an `Instrumentation` of OpenTelemetry: give it to `registerInstrumentations` or `NodeSDK`, or use
 * it alone. Nothing is patched: it subscribes to the tracing channel "mangrove-kv:call". Enable it before databases are
 * opened, and once: two of them make two spans of each call.
 */
export class MangroveInstrumentation {
  /** Name of the tracer. */
  readonly instrumentationName: string = NAME;
  /** Version of the tracer. */
  readonly instrumentationVersion: string = VERSION;
  #config: Config;
  #provider: TracerProvider | undefined;
  #tracer: Tracer | undefined;
  #isEnabled = false;
  readonly #spans = new WeakMap<CallTrace, Span>();
  readonly #channel = tracingChannel<unknown, CallTrace>('mangrove-kv:call');
  readonly #subscriber = {
    start: (call: CallTrace): void => this.#start(call),
    // A call that waits ends later, unless it has failed at once.
    end: (call: CallTrace): void => {
      if (call.isSync || 'error' in call) this.#end(call);
    },
    asyncStart: (): void => {},
    asyncEnd: (call: CallTrace): void => this.#end(call),
    error: (): void => {},
  };

  /** @throws KvError KV_INVALID_ARGUMENT for an option that it does not have, or a wrong one. */
  constructor(config: MangroveInstrumentationConfig = {}) {
    this.#config = checkConfig(config);
    if (this.#config.enabled) this.enable();
  }

  /** Records the calls of databases that are opened from now on. */
  enable(): void {
    if (this.#isEnabled) return;
    this.#isEnabled = true;
    this.#channel.subscribe(this.#subscriber);
  }

  /** Records no more calls. Spans of calls that are under way do not end. */
  disable(): void {
    if (!this.#isEnabled) return;
    this.#isEnabled = false;
    this.#channel.unsubscribe(this.#subscriber);
  }

  /** Sets where tracers come from. Default: the global provider. */
  setTracerProvider(provider: TracerProvider): void {
    this.#provider = provider;
    this.#tracer = undefined;
  }

  /** Has no effect: there are no metrics. */
  setMeterProvider(_provider: MeterProvider): void {}

  /** Replaces the options other than `enabled`. */
  setConfig(config: MangroveInstrumentationConfig): void {
    this.#config = checkConfig(config);
  }

  /** Returns the options. */
  getConfig(): MangroveInstrumentationConfig & { enabled: boolean } {
    return { ...this.#config };
  }

  #start(call: CallTrace): void {
    const parent = context.active();
    if (this.#config.requireParentSpan && trace.getSpan(parent) === undefined) return;
    if (!this.#isWanted(call)) return;
    this.#tracer ??= (this.#provider ?? trace).getTracer(NAME, VERSION);
    const span = this.#tracer.startSpan(
      `${call.operation} ${call.collection || call.database}`,
      {
        // A database in memory is a call within the process.
        kind: call.persistence === 'memory' ? SpanKind.INTERNAL : SpanKind.CLIENT,
        attributes: attributesOf(call),
      },
      parent,
    );
    this.#spans.set(call, span);
    call.run = context.bind(trace.setSpan(parent, span), call.run);
  }

  #isWanted(call: CallTrace): boolean {
    try {
      return this.#config.filter?.(call) ?? true;
    } catch {
      return false;
    }
  }

  #end(call: CallTrace): void {
    const span = this.#spans.get(call);
    if (span === undefined) return;
    this.#spans.delete(call);
    if (call.attempts !== undefined) span.setAttribute('mangrove_kv.transaction.attempts', call.attempts);
    if ('error' in call) this.#fail(span, call.error);
    else {
      const rows = rowsOf(call);
      if (rows !== undefined) span.setAttribute('db.response.returned_rows', rows);
    }
    span.end();
  }

  #fail(span: Span, error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    span.setStatus({ code: SpanStatusCode.ERROR, message });
    if (error instanceof KvError) span.setAttribute('db.response.status_code', error.code);
    span.setAttribute(
      'error.type',
      error instanceof KvError ? error.code : error instanceof Error ? error.name : '_OTHER',
    );
    span.recordException(error instanceof Error ? error : message);
  }
}
