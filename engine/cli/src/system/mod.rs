//! What the tool needs of the machine it runs on: files, locks, standard input, the program's name.

mod files;
mod input;
mod lock;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use mangrove_engine::Result;
use mangrove_engine::storage::{FsStorage, Storage};

use files::BesideWriters;
pub(crate) use input::StandardInput;
pub(crate) use lock::{DirectoryLock, lock};

/// How the files of a directory are opened, and who else may have them meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// For writing, alone.
    Alone,
    /// For reading, beside other readers.
    Readers,
    /// For reading, also while somebody writes.
    BesideWriter,
}

static PROGRAM: OnceLock<String> = OnceLock::new();

/// Sets the name under which the program was started.
pub(crate) fn set_program(name: String) {
    let _ = PROGRAM.set(name);
}

/// Returns the program's name, for advice to the user.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("mangrove", |name| name)
}

/// The directory that holds the name of `path`.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes names in a directory durable. Only Unix flushes directories.
fn flush_directory(directory: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    File::open(directory)?.sync_all()
}

/// A file being written.
pub(crate) struct NewFile {
    file: File,
    path: PathBuf,
}

impl NewFile {
    /// Creates a file, which must not exist.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let path = path.to_owned();
        Ok(Self { file, path })
    }

    /// Makes the file's content and its name durable.
    pub(crate) fn flush_all(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        flush_directory(parent_of(&self.path))
    }
}

impl Write for NewFile {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.file.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the files of a directory, which need not exist.
pub(crate) fn storage(directory: &Path, sharing: Sharing) -> Arc<dyn Storage> {
    match sharing {
        Sharing::Alone => Arc::new(FsStorage::new(directory)),
        Sharing::Readers => Arc::new(FsStorage::read_only(directory)),
        Sharing::BesideWriter => Arc::new(BesideWriters::new(directory)),
    }
}

/// Creates a directory, and those above it, and makes their names durable.
pub(crate) fn create_directory(path: &Path) -> Result<()> {
    FsStorage::new(path).create_directory()
}

/// Renames a file, replacing `to`, and makes that durable.
pub(crate) fn replace(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    flush_directory(parent_of(to))
}
