// The part of Standard Schema (https://standardschema.dev; Zod, Valibot, ArkType and others
// implement it) that is used here, declared so that the package's types depend on no other package.

/** A schema whose `~standard` property follows version 1 of Standard Schema. */
export interface StandardSchema<Input = unknown, Output = Input> {
  /** What the standard requires. */
  readonly '~standard': {
    /** Version of the standard. */
    readonly version: 1;
    /** Name of the library. */
    readonly vendor: string;
    /** Returns the value to store, or what is wrong with the input. */
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    /** Exists for type inference only. */
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** Result of a validation: the value to store, or what is wrong with the input. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** What is wrong with a value, and where in it. */
export interface SchemaIssue {
  /** What is wrong. */
  readonly message: string;
  /** Where: keys and indices from the outermost inwards. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}
