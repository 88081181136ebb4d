/** What a feature fetches, besides the files of `base`; `instead` is the one of these that it does not need. */
export interface Feature {
  readonly what: string;
  readonly base: readonly string[];
  readonly files: readonly string[];
  readonly instead?: string;
}

export declare const FEATURES: Readonly<Record<string, Feature>>;
export declare function isAsset(file: string): boolean;
