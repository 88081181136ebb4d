//! Restores backups, recovers databases, and makes and adds incremental backups in JavaScript. This
//! is a separate module, as few programs load it.

mod report;

use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::StorageFile;
use mangrove_engine::{AdvancedOptions, BackupOutcome, BackupProgress, Database, Options, RecoverPhase, Result};
#[cfg(not(feature = "encryption"))]
use mangrove_host::refuse_secret as to_key;
#[cfg(feature = "encryption")]
use mangrove_host::secret::to_key;
use mangrove_host::{HostFile, HostStorage, JsFile, JsStorage, clock, keep_panic_message, log_bytes, to_js};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// Receives the progress of the work.
    pub type Watcher;

    /// Reports `done` of `total`, in records or bytes depending on the phase. Returning `false`
    /// ends the work.
    #[wasm_bindgen(method, catch)]
    fn progress(this: &Watcher, phase: &str, done: f64, total: f64) -> std::result::Result<bool, JsValue>;

    /// Takes what is written. What it throws is thrown again in JavaScript.
    pub type Sink;

    #[wasm_bindgen(method, catch)]
    fn write(this: &Sink, bytes: &[u8]) -> std::result::Result<(), JsValue>;
}

impl Watcher {
    #[allow(clippy::cast_precision_loss, reason = "records and bytes are far below 2^53")]
    fn tell(&self, phase: &str, done: u64, total: u64) -> ControlFlow<()> {
        match self.progress(phase, done as f64, total as f64) {
            Ok(true) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        Self::write(self, from).map_err(|_| io::Error::other("the sink failed"))?;
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file read from its beginning to its end.
struct Stream {
    file: JsFile,
    at: u64,
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut read = || -> Result<usize> {
            let left = self.file.len()? - self.at;
            let len = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
            self.file.read_at(self.at, &mut into[..len])?;
            Ok(len)
        };
        let len = read().map_err(|error| io::Error::other(error.to_string()))?;
        self.at += len as u64;
        Ok(len)
    }
}

/// Returns options made from 16 random bytes and the secret of an encrypted database. The bytes keep
/// anything that was written before from being taken for part of the new database.
fn options(opening: &[u8], new_id: bool) -> Result<Options> {
    let (random, secret) = opening.split_first_chunk().unwrap_or((&[0; 16], opening));
    let random = u128::from_le_bytes(*random);
    let defaults = Options::default();
    Ok(Options {
        clock: clock(),
        key: to_key(secret)?,
        advanced: AdvancedOptions {
            database_id: new_id.then_some(random),
            session: Some(random as u64),
            log_bytes: Some(log_bytes(defaults.cache_bytes)),
            ..defaults.advanced
        },
        ..defaults
    })
}

fn storage(files: HostStorage) -> Arc<JsStorage> {
    Arc::new(JsStorage::new(files, false))
}

/// Creates a database from a backup; the storage has to be empty. Returns a report in JSON, or
/// nothing if it was told to end; throws `{ code, message, retryable }`.
#[wasm_bindgen]
pub fn restore(
    backup: HostFile,
    target: HostStorage,
    opening: &[u8],
    watcher: &Watcher,
) -> std::result::Result<Option<String>, JsValue> {
    keep_panic_message();
    let restored = JsFile::new(backup, "the backup").and_then(|file| {
        let mut progress = |now: BackupProgress| watcher.tell("restoring", now.records, now.total_records);
        let mut stream = Stream { file, at: 0 };
        mangrove_engine::restore(&mut stream, storage(target), options(opening, false)?, &mut progress)
    });
    let report = restored.map_err(|error| to_js(&error))?;
    Ok((report.outcome == BackupOutcome::Complete).then(|| report::restored(&report)))
}

/// Writes the commits after a version to `sink`, in the form that `restore_commits` reads.
/// `beside_writer` says that another process may write to the database meanwhile. Returns and throws
/// what `restore` does.
#[wasm_bindgen(js_name = backupSince)]
pub fn backup_since(
    source: HostStorage,
    beside_writer: bool,
    version: f64,
    mut sink: Sink,
    opening: &[u8],
    watcher: &Watcher,
) -> std::result::Result<Option<String>, JsValue> {
    keep_panic_message();
    let mut progress = |now: BackupProgress| watcher.tell("copying", now.records, now.total_records);
    #[allow(clippy::cast_sign_loss, reason = "versions are whole numbers below 2^53")]
    let version = version as u64;
    let saved = options(opening, false).and_then(|options| {
        let options = Options {
            create: false,
            read_only: true,
            ..options
        };
        let database = Database::open(Arc::new(JsStorage::new(source, beside_writer)), options)?;
        database.backup_since(version, &mut sink, &mut progress)
    });
    let report = saved.map_err(|error| to_js(&error))?;
    Ok((report.outcome == BackupOutcome::Complete).then(|| report::saved(&report)))
}

/// Adds the commits of an incremental backup to a database: all of them or none. Returns and throws
/// what `restore` does.
#[wasm_bindgen(js_name = restoreCommits)]
pub fn restore_commits(
    backup: HostFile,
    target: HostStorage,
    opening: &[u8],
    watcher: &Watcher,
) -> std::result::Result<Option<String>, JsValue> {
    keep_panic_message();
    let mut progress = |now: BackupProgress| watcher.tell("restoring", now.records, now.total_records);
    let restored = options(opening, false).and_then(|options| {
        let options = Options {
            create: false,
            ..options
        };
        let mut stream = Stream {
            file: JsFile::new(backup, "the backup")?,
            at: 0,
        };
        let database = Database::open(storage(target), options)?;
        let restored = database.restore_commits(&mut stream, &mut progress);
        let closed = database.close();
        restored.and_then(|report| closed.map(|()| report))
    });
    let report = restored.map_err(|error| to_js(&error))?;
    Ok((report.outcome == BackupOutcome::Complete).then(|| report::added(&report)))
}

/// Writes what can be read of a damaged database into a new one. The storage of the new one has to
/// be empty. Returns and throws what `restore` does.
#[wasm_bindgen]
pub fn recover(
    source: HostStorage,
    target: HostStorage,
    opening: &[u8],
    watcher: &Watcher,
) -> std::result::Result<Option<String>, JsValue> {
    keep_panic_message();
    let mut progress = |now: mangrove_engine::RecoverProgress| match now.phase {
        RecoverPhase::Scanning => watcher.tell("scanning", now.scanned_bytes, now.total_bytes),
        RecoverPhase::Copying => watcher.tell("copying", now.records, 0),
        RecoverPhase::Verifying => watcher.tell("verifying", now.records, 0),
        _ => ControlFlow::Continue(()),
    };
    let recovered = options(opening, true)
        .and_then(|options| mangrove_engine::recover(storage(source), storage(target), options, &mut progress));
    let report = recovered.map_err(|error| to_js(&error))?;
    Ok(report::recovered(&report))
}

/// Returns the message of the engine's panic, if there was one.
#[wasm_bindgen]
pub fn panic_message() -> Option<String> {
    mangrove_host::last_panic()
}
