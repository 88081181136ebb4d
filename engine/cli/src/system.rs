//! What the tool needs of the machine it runs on: files, locks, standard input and output, a clock.
//!
//! The native program has the standard library's; the package's tool, which is WebAssembly, asks
//! its JavaScript host. Like the standard library's streams there is one for the whole process.

use std::any::Any;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mangrove_engine::storage::Storage;
use mangrove_engine::{Options, Result};

/// How the files of a directory are opened, and who else may have them meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// For writing, alone.
    Alone,
    /// For reading, beside other readers.
    Readers,
    /// For reading, also while somebody writes.
    BesideWriter,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// A file being written.
pub trait NewFile: Write {
    /// Makes the file's content and its name durable.
    fn flush_all(&mut self) -> io::Result<()>;
}

/// Standard input.
pub trait Input: Read {
    /// Whether data, or the end, can be read within `moment`. `false` where the system cannot tell.
    fn is_ready(&mut self, moment: Duration) -> bool;
}

/// The machine.
pub trait System: Sync {
    /// Returns the files of a directory, which need not exist.
    fn storage(&self, directory: &Path, sharing: Sharing) -> Arc<dyn Storage>;

    /// Locks an existing directory until the result is dropped. Returns `None` where no one else
    /// can write either, or where the files' own locks suffice.
    ///
    /// # Errors
    /// [`Error::Locked`](mangrove_engine::Error::Locked) if another process has it.
    fn lock(&self, directory: &Path) -> Result<Option<Box<dyn Any>>>;

    /// Creates a directory, and those above it, and makes their names durable.
    fn create_directory(&self, path: &Path) -> Result<()>;

    /// Follows links; `None` if nothing is there.
    fn kind(&self, path: &Path) -> Option<Kind>;

    /// Whether the name exists, even as a link that leads nowhere.
    fn has_name(&self, path: &Path) -> bool;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>>;

    /// Creates a file, which must not exist.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;

    /// Renames a file, replacing `to`, and makes that durable.
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Whether [`replace`](Self::replace) can replace a file that is open.
    fn replaces_open_files(&self) -> bool;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with everything in it.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;

    /// Standard input.
    fn input(&self) -> io::Result<Box<dyn Input>>;

    /// Standard output.
    fn output(&self) -> Box<dyn Write>;

    /// Standard error.
    fn error_output(&self) -> Box<dyn Write>;

    /// Whether a person reads standard error.
    fn is_error_output_terminal(&self) -> bool;

    /// Options of databases, with the clock and the randomness of this machine.
    fn options(&self) -> Options;

    /// Fills a buffer from a cryptographically secure generator.
    fn random(&self) -> fn(&mut [u8]);

    /// Identity of a new database; `None` lets the engine choose one at random.
    fn new_id(&self) -> Option<u128>;

    /// Time since some moment; it never goes back.
    fn now(&self) -> Duration;
}

static SYSTEM: OnceLock<&'static dyn System> = OnceLock::new();
static PROGRAM: OnceLock<String> = OnceLock::new();

/// Sets the machine for the whole process; later calls have no effect.
pub(crate) fn install(system: &'static dyn System) {
    let _ = SYSTEM.set(system);
}

/// Sets the name under which the program was started.
pub(crate) fn set_program(name: String) {
    let _ = PROGRAM.set(name);
}

/// Returns the program's name, for advice to the user.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("mangrove", |name| name)
}

/// Returns the machine.
///
/// # Panics
/// If none is installed, which [`run`](crate::run) does first.
#[allow(clippy::expect_used, reason = "no input leads here")]
pub(crate) fn system() -> &'static dyn System {
    *SYSTEM.get().expect("run installs the system")
}

/// Whether a path leads to a regular file.
pub(crate) fn is_file(path: &Path) -> bool {
    system().kind(path) == Some(Kind::File)
}

/// Whether a path leads to a directory.
pub(crate) fn is_directory(path: &Path) -> bool {
    system().kind(path) == Some(Kind::Directory)
}
