// The global types that localForage's typings declare, so that a program written with them compiles.
import type { TwinOptions } from '@mangrove-kv/migrate/internal';

declare global {
  /** Which store. */
  interface LocalForageDbInstanceOptions {
    name?: string;
    storeName?: string;
  }

  /** Settings of an instance. Those of {@link TwinOptions} are not in localForage. */
  interface LocalForageOptions extends LocalForageDbInstanceOptions, TwinOptions {
    driver?: string | string[];
    size?: number;
    version?: number;
    description?: string;
  }

  /** What every driver has. */
  interface LocalForageDbMethodsCore {
    // biome-ignore-start lint/suspicious/noExplicitAny: localForage's types
    getItem<T>(key: string, callback?: (err: any, value: T | null) => void): Promise<T | null>;
    setItem<T>(key: string, value: T, callback?: (err: any, value: T) => void): Promise<T>;
    removeItem(key: string, callback?: (err: any) => void): Promise<void>;
    clear(callback?: (err: any) => void): Promise<void>;
    length(callback?: (err: any, numberOfKeys: number) => void): Promise<number>;
    key(keyIndex: number, callback?: (err: any, key: string) => void): Promise<string>;
    keys(callback?: (err: any, keys: string[]) => void): Promise<string[]>;
    iterate<T, U>(
      iteratee: (value: T, key: string, iterationNumber: number) => U,
      callback?: (err: any, result: U) => void,
    ): Promise<U>;
  }

  /** Deletes a store, or all stores of a database. */
  interface LocalForageDropInstanceFn {
    // biome-ignore lint/style/useShorthandFunctionType: as an interface it merges with localForage's
    (dbInstanceOptions?: LocalForageDbInstanceOptions, callback?: (err: any) => void): Promise<void>;
  }

  /** What a driver may have. */
  interface LocalForageDriverMethodsOptional {
    dropInstance?: LocalForageDropInstanceFn;
  }

  /** What an instance has even if its driver lacks it. */
  interface LocalForageDbMethodsOptional {
    dropInstance: LocalForageDropInstanceFn;
  }

  /** The methods of a driver. */
  interface LocalForageDriverDbMethods extends LocalForageDbMethodsCore, LocalForageDriverMethodsOptional {}

  /** Whether a driver works here. */
  interface LocalForageDriverSupportFunc {
    // biome-ignore lint/style/useShorthandFunctionType: as an interface it merges with localForage's
    (): Promise<boolean>;
  }

  /** A driver, as `defineDriver` takes it. */
  interface LocalForageDriver extends LocalForageDriverDbMethods {
    _driver: string;
    _initStorage(options: LocalForageOptions): void;
    _support?: boolean | LocalForageDriverSupportFunc;
  }

  /** Turns values into strings and back, as they are kept in localStorage. */
  interface LocalForageSerializer {
    serialize<T>(value: T | ArrayBuffer | Blob, callback: (value: string, error: any) => void): void;
    deserialize<T>(value: string): T | ArrayBuffer | Blob;
    stringToBuffer(serializedString: string): ArrayBuffer;
    bufferToString(buffer: ArrayBuffer): string;
  }

  /** The methods that read and write. */
  interface LocalForageDbMethods extends LocalForageDbMethodsCore, LocalForageDbMethodsOptional {}

  /** An instance: a store, or the default one. */
  interface LocalForage extends LocalForageDbMethods {
    LOCALSTORAGE: string;
    WEBSQL: string;
    INDEXEDDB: string;
    config(options: LocalForageOptions): boolean;
    config(options: string): any;
    config(): LocalForageOptions;
    createInstance(options: LocalForageOptions): LocalForage;
    driver(): string;
    setDriver(driver: string | string[], callback?: () => void, errorCallback?: (error: any) => void): Promise<void>;
    defineDriver(driver: LocalForageDriver, callback?: () => void, errorCallback?: (error: any) => void): Promise<void>;
    getDriver(driver: string): Promise<LocalForageDriver>;
    getSerializer(callback?: (serializer: LocalForageSerializer) => void): Promise<LocalForageSerializer>;
    supports(driverName: string): boolean;
    ready(callback?: (error: any) => void): Promise<void>;
    // biome-ignore-end lint/suspicious/noExplicitAny: localForage's types
  }
}
