//! Incremental backups: the commits since another backup, read from the feed and restored.

use std::io::{Read, Write};
use std::ops::ControlFlow;

use super::changes::{self, Decoder};
use super::commits::{CommitReader, CommitWriter};
use super::header::Header;
use super::{BackupOutcome, BackupProgress, BackupReport, Control, Flow, RestoreReport, Stop};
use crate::block::HEADER_BYTES;
use crate::database::{Changes, Database};
use crate::error::{Error, Result};
use crate::pages::Encryption;
use crate::transaction::{Durability, ExclusiveTransaction};

/// Only memory limits a commit here, as it did where the commit was made.
const MAX_COMMIT_BYTES: usize = isize::MAX as usize;

impl Database {
    /// Writes all commits after `version`, up to the newest one, to `into`.
    ///
    /// [`restore_commits`](Self::restore_commits) reads the stream: it holds the commits since
    /// the backup whose report says `version`. The commits come from the feed, so the database
    /// should store one ([`Options::feed_commits`](crate::Options::feed_commits)) that reaches back
    /// that far. `progress` counts commits and is called at the beginning, at the end and at least
    /// once for every megabyte of data.
    ///
    /// Memory is bounded by the largest commit and a few frames of 256 KiB.
    ///
    /// # Errors
    /// [`Error::TruncatedFeed`] if commits after `version` are no longer retained, so that a full
    /// backup is required. [`Error::InvalidArgument`] if there are no commits after `version`, or
    /// if it is 0. Errors of reading the database and of the sink. The output until then is not
    /// a valid backup.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use std::sync::Arc;
    /// use mangrove_engine::{Database, Durability, Options, restore, storage::MemoryStorage};
    ///
    /// let options = Options { feed_commits: 1000, ..Options::default() };
    /// let database = Database::open(Arc::new(MemoryStorage::new()), options)?;
    /// let mut progress = |_| ControlFlow::Continue(());
    /// let (mut full, mut later) = (Vec::new(), Vec::new());
    /// let base = database.snapshot().backup(&mut full, &mut progress)?.version;
    /// database.set("cities", b"Quito", b"2.0 M", Durability::Strict)?;
    /// database.backup_since(base, &mut later, &mut progress)?;
    ///
    /// let target = MemoryStorage::new();
    /// restore(&mut &full[..], Arc::new(target.clone()), Options::default(), &mut progress)?;
    /// let copy = Database::open(Arc::new(target), Options::default())?;
    /// copy.restore_commits(&mut &later[..], &mut progress)?;
    /// assert_eq!(copy.version(), database.version());
    /// assert_eq!(copy.snapshot().collection("cities").expect("it is there").len(), 1);
    /// # Ok::<(), mangrove_engine::Error>(())
    /// ```
    pub fn backup_since(
        &self,
        version: u64,
        into: &mut dyn Write,
        progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        let snapshot = self.snapshot();
        let header = Header {
            node_bytes: (snapshot.config().limits.node_capacity + HEADER_BYTES) as u32,
            database_id: snapshot.config().database_id,
            version: snapshot.version(),
            base: version,
            records: 0,
            collections: 0,
        };
        drop(snapshot);
        if version >= header.version {
            return Err(Error::InvalidArgument {
                what: format!(
                    "there are no commits after version {version}; the newest is {}",
                    header.version
                )
                .into(),
            });
        }
        let mut feed = self.changes(Some(version))?;
        let encryption = self.shared.credentials().map(|credentials| credentials.encryption);
        let mut control = Control::new(progress, header.version - version);
        let mut changes = 0;
        let outcome = match save(
            &header,
            encryption.as_ref(),
            &mut feed,
            into,
            &mut changes,
            &mut control,
        ) {
            Ok(()) => BackupOutcome::Complete,
            Err(Stop::Cancelled) => BackupOutcome::Cancelled,
            Err(Stop::Failed(error)) => return Err(error),
        };
        Ok(BackupReport {
            outcome,
            database_id: header.database_id,
            base: header.base,
            version: header.version,
            collections: 0,
            records: 0,
            commits: control.state.records,
            changes,
            bytes: control.state.bytes,
        })
    }

    /// Replays the commits of an incremental backup with the same versions.
    ///
    /// Takes a backup that [`backup_since`](Self::backup_since) wrote, in a database restored from
    /// the backup before it. All commits become visible and durable together or not at all: after
    /// an error or a cancellation the database is unchanged. Records have the version of their
    /// commit.
    ///
    /// Memory is bounded by the cache and the largest commit.
    ///
    /// # Errors
    /// [`Error::WrongBase`] if the backup builds on another version than this database has,
    /// [`Error::InvalidArgument`] if the backup is a full one or of a database with another id,
    /// [`Error::NotADatabase`] if the stream is not a backup, [`Error::WrongKey`] if it is encrypted
    /// under another key than this database was opened with, [`Error::VersionUnsupported`],
    /// [`Error::CorruptBackup`] if it is damaged or truncated, and the errors of writing.
    pub fn restore_commits(
        &self,
        from: &mut dyn Read,
        progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<RestoreReport> {
        let key = self.shared.credentials().map(|credentials| credentials.key);
        let (header, mut reader) = CommitReader::new(from, key.as_ref())?;
        let mut transaction = self.begin()?;
        if header.database_id != transaction.database_id() {
            return Err(Error::InvalidArgument {
                what: "the backup is of a database with another id".into(),
            });
        }
        if header.base != transaction.version() {
            return Err(Error::wrong_base(header.base, transaction.version()));
        }
        let mut control = Control::new(progress, header.version - header.base);
        let mut changes = 0;
        let applied = apply(&mut reader, &mut transaction, &mut changes, &mut control);
        let outcome = match applied.and_then(|()| Ok(reader.finish()?)) {
            Ok(()) => {
                transaction.commit(Durability::Strict)?;
                // The commits are durable now, so the callback can no longer cancel.
                let _ = control.report();
                BackupOutcome::Complete
            }
            Err(Stop::Cancelled) => BackupOutcome::Cancelled,
            Err(Stop::Failed(error)) => return Err(error),
        };
        Ok(RestoreReport {
            outcome,
            database_id: header.database_id,
            version: header.version,
            collections: 0,
            records: 0,
            commits: control.state.records,
            changes,
            bytes: control.state.bytes,
            blocks: 0,
        })
    }
}

fn save(
    header: &Header,
    encryption: Option<&Encryption>,
    feed: &mut Changes,
    into: &mut dyn Write,
    changes: &mut u64,
    control: &mut Control<'_>,
) -> Flow<()> {
    let mut writer = CommitWriter::new(into, header, encryption)?;
    control.report()?;
    let mut bytes = Vec::new();
    for version in header.base + 1..=header.version {
        let next = feed.next_commit()?.filter(|commit| commit.version == version);
        let commit = next.ok_or_else(|| Error::corrupt("the feed lacks a commit"))?;
        bytes.clear();
        for change in &commit.changes {
            changes::encode(change, &mut bytes);
        }
        writer.write(version, &bytes)?;
        *changes += commit.changes.len() as u64;
        control.state.records += 1;
        control.at(writer.frames(), writer.written())?;
    }
    control.state.bytes = writer.finish()?;
    // The backup is complete, so the callback can no longer cancel.
    let _ = control.report();
    Ok(())
}

fn apply(
    reader: &mut CommitReader<'_>,
    transaction: &mut ExclusiveTransaction<'_>,
    changes: &mut u64,
    control: &mut Control<'_>,
) -> Flow<()> {
    control.report()?;
    while let Some((version, bytes)) = reader.next(MAX_COMMIT_BYTES)? {
        if version != transaction.version() + 1 {
            return Err(reader.damaged("a commit is missing").into());
        }
        let mut decoder = Decoder::new(&bytes);
        while let Some(change) = decoder.next().map_err(|_| reader.damaged("a change is malformed"))? {
            transaction.repeat(&change).map_err(|error| match error {
                // No database makes such a change.
                Error::InvalidArgument { .. }
                | Error::KeyTooLarge(_)
                | Error::ValueTooLarge(_)
                | Error::AlreadyExists { .. }
                | Error::CodecMismatch(_) => reader.damaged(format!("a change cannot be repeated: {error}")),
                error => error,
            })?;
            *changes += 1;
        }
        transaction.seal_always();
        control.state.records += 1;
        control.at(reader.frames(), reader.bytes_read())?;
    }
    control.state.bytes = reader.bytes_read();
    Ok(())
}
