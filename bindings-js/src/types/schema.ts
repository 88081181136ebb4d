// Standard Schema (https://standardschema.dev), which Zod, Valibot, ArkType and others implement: what of it is used
// here, so that the package's types need no other.

/** A schema whose `~standard` property follows version 1 of Standard Schema. */
export interface StandardSchema<Input = unknown, Output = Input> {
  /** What the standard asks for. */
  readonly '~standard': {
    /** Of the standard. */
    readonly version: 1;
    /** Name of the library. */
    readonly vendor: string;
    /** Gives what to store, or what is wrong. */
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    /** For the types only. */
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** What a validation gives: the value to store, or what is wrong with the one that was given. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** What is wrong with a value, and where in it. */
export interface SchemaIssue {
  /** What is wrong. */
  readonly message: string;
  /** Where: keys and indices from the outside in. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}
