//! The machine of the native program: the standard library's files and streams.

mod files;
mod input;
mod lock;

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use mangrove_engine::storage::{FsStorage, Storage};
use mangrove_engine::{Options, Result};

use crate::system::{Input, Kind, NewFile, Sharing, System};
use files::BesideWriters;

/// The machine that the program runs on.
pub struct Native;

/// The one value of [`Native`].
pub static NATIVE: Native = Native;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

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

struct Created {
    file: File,
    path: PathBuf,
}

impl Write for Created {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.file.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl NewFile for Created {
    fn flush_all(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        flush_directory(parent_of(&self.path))
    }
}

impl System for Native {
    fn storage(&self, directory: &Path, sharing: Sharing) -> Arc<dyn Storage> {
        match sharing {
            Sharing::Alone => Arc::new(FsStorage::new(directory)),
            Sharing::Readers => Arc::new(FsStorage::read_only(directory)),
            Sharing::BesideWriter => Arc::new(BesideWriters::new(directory)),
        }
    }

    fn lock(&self, directory: &Path) -> Result<Option<Box<dyn Any>>> {
        let lock = lock::lock(directory)?;
        Ok(lock.map(|lock| Box::new(lock) as Box<dyn Any>))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        FsStorage::new(path).create_directory()
    }

    fn kind(&self, path: &Path) -> Option<Kind> {
        let metadata = fs::metadata(path).ok()?;
        Some(match (metadata.is_file(), metadata.is_dir()) {
            (true, _) => Kind::File,
            (_, true) => Kind::Directory,
            _ => Kind::Other,
        })
    }

    fn has_name(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok()
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(File::open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let path = path.to_owned();
        Ok(Box::new(Created { file, path }))
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        flush_directory(parent_of(to))
    }

    fn replaces_open_files(&self) -> bool {
        cfg!(not(windows))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn input(&self) -> io::Result<Box<dyn Input>> {
        Ok(Box::new(input::StandardInput::open()?))
    }

    fn output(&self) -> Box<dyn Write> {
        Box::new(io::stdout().lock())
    }

    fn error_output(&self) -> Box<dyn Write> {
        Box::new(io::stderr())
    }

    fn is_error_output_terminal(&self) -> bool {
        io::stderr().is_terminal()
    }

    fn options(&self) -> Options {
        Options::default()
    }

    fn random(&self) -> fn(&mut [u8]) {
        mangrove_engine::system_random
    }

    fn new_id(&self) -> Option<u128> {
        None
    }

    fn now(&self) -> Duration {
        START.elapsed()
    }
}
