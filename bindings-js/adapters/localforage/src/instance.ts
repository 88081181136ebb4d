// Instances: settings, and the choice of a driver, whose methods become methods of the instance.
import { calling, callingBoth } from './callbacks.ts';
import type { Callback } from './callbacks.ts';
import type { BuiltIn, DbInfo, Host } from './driver.ts';
import { localStorageDriver } from './local-storage-driver.ts';
import { mangroveDriver } from './mangrove-driver.ts';
import { serializer } from './serializer.ts';

type Driver = BuiltIn | LocalForageDriver;
type Methods = Record<string, (...args: unknown[]) => Promise<unknown>>;

const WEBSQL = 'webSQLStorage';
/** Methods that a driver need not have. */
const OPTIONAL = ['dropInstance'];
/** Methods that an instance has from its driver. */
const METHODS = ['clear', 'getItem', 'iterate', 'key', 'keys', 'length', 'removeItem', 'setItem', ...OPTIONAL];

/** All drivers, and whether they work here. Instances share them. */
const drivers = new Map<string, { readonly driver: Driver; readonly isSupported: boolean }>();
for (const driver of [mangroveDriver, localStorageDriver])
  drivers.set(driver._driver, { driver, isSupported: driver._support });

function defaults(): LocalForageOptions {
  return {
    description: '',
    driver: [mangroveDriver._driver, WEBSQL, localStorageDriver._driver],
    name: 'localforage',
    size: 4_980_736,
    storeName: 'keyvaluepairs',
    version: 1,
  };
}

function noDriver(): Error {
  return new Error('No available storage method found.');
}

/** Adds what the driver need not have; throws if it lacks what it needs. */
function checkDriver(driver: LocalForageDriver): void {
  const notCompliant = (): Error =>
    new Error('Custom driver not compliant; see https://mozilla.github.io/localForage/#definedriver');
  if (!driver._driver) throw notCompliant();
  const methods = driver as unknown as Partial<Methods>;
  for (const name of [...METHODS, '_initStorage']) {
    const isAbsent = OPTIONAL.includes(name) && !methods[name];
    if (!isAbsent && typeof methods[name] !== 'function') throw notCompliant();
  }
  for (const name of OPTIONAL) {
    methods[name] ??= (...args) => {
      const callback = args.at(-1);
      const missing = Promise.reject(new Error(`Method ${name} is not implemented by the current driver`));
      return calling(missing, typeof callback === 'function' ? (callback as Callback<never>) : undefined);
    };
  }
}

/** An instance, with the fields that drivers and plug-ins of localForage use. */
export class Instance implements Host {
  readonly INDEXEDDB = mangroveDriver._driver;
  readonly LOCALSTORAGE = localStorageDriver._driver;
  readonly WEBSQL = WEBSQL;
  readonly _defaultConfig = defaults();
  readonly _config: LocalForageOptions;
  _dbInfo: DbInfo | null = null;
  _driver: string | undefined;
  /** `false` until a driver is chosen, `null` until it is initialized. */
  _ready: Promise<void> | false | null = false;
  _driverSet: Promise<void> = Promise.resolve();
  _initDriver: (() => Promise<void>) | null = null;
  declare keys: Host['keys'];

  constructor(options?: LocalForageOptions) {
    this._config = { ...defaults(), ...options };
    if (Array.isArray(this._config.driver)) this._config.driver = this._config.driver.slice();
    this._wrapLibraryMethodsWithReady();
    this.setDriver(this._config.driver as string | string[]).catch(() => undefined);
  }

  config(options?: LocalForageOptions | string): unknown {
    if (typeof options === 'string') return (this._config as Record<string, unknown>)[options];
    if (typeof options !== 'object') return this._config;
    if (this._ready) return new Error("Can't call config() after localforage has been used.");
    for (const [name, value] of Object.entries(options)) {
      if (name === 'version' && typeof value !== 'number') return new Error('Database version must be a number.');
      (this._config as Record<string, unknown>)[name] =
        name === 'storeName' ? String(value).replace(/\W/g, '_') : value;
    }
    return options.driver ? this.setDriver(options.driver) : true;
  }

  createInstance(options?: LocalForageOptions): Instance {
    return new Instance(options);
  }

  driver(): string | null {
    return this._driver ?? null;
  }

  supports(name: string): boolean {
    return drivers.get(name)?.isSupported ?? false;
  }

  defineDriver(driver: LocalForageDriver, callback?: unknown, errorCallback?: unknown): Promise<void> {
    const defined = new Promise<void>((resolve, reject) => {
      checkDriver(driver);
      const define = (isSupported: boolean): void => {
        drivers.set(driver._driver, { driver, isSupported });
        resolve();
      };
      // A driver that need not ask is defined when this call returns.
      if (typeof driver._support === 'function') driver._support().then(define, reject);
      else define('_support' in driver ? Boolean(driver._support) : true);
    });
    return callingBoth(defined, callback, errorCallback);
  }

  getDriver(name: string, callback?: unknown, errorCallback?: unknown): Promise<Driver> {
    const found = drivers.get(name);
    const driver = found === undefined ? Promise.reject(new Error('Driver not found.')) : Promise.resolve(found.driver);
    return callingBoth(driver, callback, errorCallback);
  }

  getSerializer(callback?: unknown): Promise<typeof serializer> {
    return callingBoth(Promise.resolve(serializer), callback, undefined);
  }

  ready(callback?: unknown): Promise<void> {
    const ready = this._driverSet.then(() => {
      this._ready ??= this._initDriver?.() ?? null;
      return this._ready || undefined;
    });
    return callingBoth(ready, callback, callback);
  }

  setDriver(names: string | string[], callback?: unknown, errorCallback?: unknown): Promise<void> {
    const supported = this._getSupportedDrivers(Array.isArray(names) ? names : [names]);
    // Another choice may be in progress.
    const before = this._driverSet.catch(() => undefined);
    this._driverSet = before.then(async () => {
      this._dbInfo = null;
      this._ready = null;
      try {
        this._driver = (await this.getDriver(supported[0] as string))._driver;
      } catch {
        this.#configureDriver();
        throw noDriver();
      }
      this.#configureDriver();
      this._wrapLibraryMethodsWithReady();
      this._initDriver = () => this.#initialize(supported);
    });
    return callingBoth(this._driverSet, callback, errorCallback);
  }

  /** Uses the first driver that can be initialized. */
  async #initialize(names: readonly string[]): Promise<void> {
    for (const name of names) {
      this._dbInfo = null;
      try {
        this._extend(await this.getDriver(name));
        this.#configureDriver();
        // Methods of the driver wait for this.
        this._ready = Promise.resolve((this as unknown as Methods)['_initStorage']?.(this._config)) as Promise<void>;
        await this._ready;
        return;
      } catch {
        this._ready = null;
      }
    }
    this.#configureDriver();
    const failed = Promise.reject(noDriver());
    failed.catch(() => undefined);
    this._driverSet = failed;
    await failed;
  }

  #configureDriver(): void {
    this._config.driver = this.driver() as string;
  }

  _extend(methods: object): void {
    Object.assign(this, methods);
  }

  _getSupportedDrivers(names: readonly string[]): string[] {
    return names.filter((name) => this.supports(name));
  }

  /** Until the driver is initialized, its methods wait for that. */
  _wrapLibraryMethodsWithReady(): void {
    const methods = this as unknown as Methods;
    for (const name of METHODS) {
      methods[name] = async (...args) => {
        await this.ready();
        return methods[name]?.apply(this, args);
      };
    }
  }
}
