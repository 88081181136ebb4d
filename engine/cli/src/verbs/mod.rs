//! The verbs, one file each: its arguments and a function that runs it.

mod archive;
mod backup;
mod bench;
mod change_key;
mod compact;
mod count;
mod del;
mod dump;
mod get;
mod list;
mod load;
mod recover;
mod reencrypt;
mod rename;
mod restore;
mod scan;
mod set;
mod stat;
mod verify;

use clap::Subcommand;

use crate::failure::Result;
pub(crate) use archive::refuse_restore;

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Prints the value of a key.
    Get(get::Arguments),
    /// Stores a record.
    Set(set::Arguments),
    /// Removes a record; prints whether there was one.
    #[command(visible_alias = "delete")]
    Del(del::Arguments),
    /// Prints the records of a range, one {"key":…,"value":…} a line.
    Scan(scan::Arguments),
    /// Prints the number of records in a range.
    Count(count::Arguments),
    /// Prints figures of the database and its collections.
    #[command(visible_alias = "stats")]
    Stat(stat::Arguments),
    /// Prints the collections, one {"name":…,"count":…,"keyCodec":…,"valueCodec":…} a line.
    List(list::Arguments),
    /// Gives a collection another name; prints whether there was one.
    Rename(rename::Arguments),
    /// Reads and checks the whole file; exit code 2 if it is damaged.
    Verify(verify::Arguments),
    /// Writes what can be read of a damaged database into a new one; exit code 2 if something was
    /// lost.
    Recover(recover::Arguments),
    /// Prints everything in the form that `load` reads.
    #[command(visible_alias = "export")]
    Dump(dump::Arguments),
    /// Stores the records of standard input, one {"key":…,"value":…} a line.
    #[command(visible_alias = "import")]
    Load(load::Arguments),
    /// Gives free space inside the data file back to the file system.
    Compact(compact::Arguments),
    /// Writes everything to one file, which `restore` reads.
    Backup(backup::Arguments),
    /// Makes a new database from a file that `backup` wrote, or with --at from an archive.
    Restore(restore::Arguments),
    /// Copies the log of a synchronized database into its archive in a bucket, from which
    /// `restore --at` makes the database of an earlier time.
    Archive(archive::Arguments),
    /// Gives an encrypted database another key; its data are not rewritten.
    ChangeKey(change_key::Arguments),
    /// Encrypts everything in an encrypted database anew, under another data key.
    Reencrypt(reencrypt::Arguments),
    /// Measures a new database, which it removes afterwards.
    Bench(bench::Arguments),
}

impl Verb {
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Self::Get(arguments) => get::run(arguments),
            Self::Set(arguments) => set::run(arguments),
            Self::Del(arguments) => del::run(arguments),
            Self::Scan(arguments) => scan::run(arguments),
            Self::Count(arguments) => count::run(arguments),
            Self::Stat(arguments) => stat::run(arguments),
            Self::List(arguments) => list::run(arguments),
            Self::Rename(arguments) => rename::run(arguments),
            Self::Verify(arguments) => verify::run(arguments),
            Self::Recover(arguments) => recover::run(arguments),
            Self::Dump(arguments) => dump::run(arguments),
            Self::Load(arguments) => load::run(arguments),
            Self::Compact(arguments) => compact::run(arguments),
            Self::Backup(arguments) => backup::run(arguments),
            Self::Restore(arguments) => restore::run(arguments),
            Self::Archive(arguments) => archive::run(arguments),
            Self::ChangeKey(arguments) => change_key::run(arguments),
            Self::Reencrypt(arguments) => reencrypt::run(arguments),
            Self::Bench(arguments) => bench::run(arguments),
        }
    }
}
