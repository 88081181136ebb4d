// The package has types for its main entry only.
declare module '@journeyapps/wa-sqlite/src/examples/OPFSWriteAheadVFS.js' {
  export class OPFSWriteAheadVFS {
    static create(
      name: string,
      module: unknown,
      options: { nTmpFiles?: number; autoCheckpoint?: number; backstopInterval?: number },
    ): Promise<SQLiteVFS>;
  }
}
