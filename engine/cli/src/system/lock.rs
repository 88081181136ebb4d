//! The lock file of the JavaScript package. It names the holder of a database, for programs that
//! cannot take the engine's lock on the data file. Its content, and the way it is taken over, are
//! those of `bindings-js/src/storage/lock-file.ts`.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mangrove_engine::{Error, Result};
use serde::{Deserialize, Serialize};

const LOCK_FILE: &str = "lock";
/// Held while a lock is taken over.
const TAKEOVER_FILE: &str = "lock.takeover";
/// Age after which a lock without content is stale: its writer died while creating it.
const EMPTY_LOCK_AGE: Duration = Duration::from_secs(5);
/// Silence after which a holder without an operating-system lock is gone. Such a holder shows every
/// ten seconds that it lives.
const SILENCE: Duration = Duration::from_mins(2);

#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    /// Start time of the process, where the system reports it: process ids are reused.
    #[serde(default)]
    started: String,
    /// Where process ids mean the same, as far as the system reports it.
    #[serde(default)]
    host: String,
    #[serde(default)]
    boot: String,
    #[serde(default)]
    namespace: String,
    /// Inode number of the directory: a copy of the file locks nothing.
    #[serde(default)]
    directory: String,
    #[serde(default)]
    runtime: String,
    /// Whether the holder has an operating-system lock, which then is the one that counts.
    #[serde(default)]
    system: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The holder has no other lock than this.
    Held,
    /// The engine's lock decides.
    Informs,
    Gone,
}

/// A directory whose lock file is ours until this is dropped.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    path: PathBuf,
    content: Vec<u8>,
    /// The file that the package locks on Windows; no other process can open it.
    #[cfg(windows)]
    _exclusive: fs::File,
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        if fs::read(&self.path).is_ok_and(|content| content == self.content) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the start time of a process, or an empty string where the system does not report it.
fn start_of(pid: u32) -> String {
    let read = || {
        // A process sees others by the ids of the namespace that /proc was mounted in.
        if fs::read_link("/proc/self").ok()?.to_str()? != std::process::id().to_string() {
            return None;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything; the start time is the 20th field after it.
        let (_, fields) = stat.rsplit_once(") ")?;
        Some(fields.split(' ').nth(19)?.to_owned())
    };
    read().unwrap_or_default()
}

#[cfg(unix)]
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // Any error but "no such process" means that the process exists. It may be another user's.
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn exists(_pid: u32) -> bool {
    true
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    String::new()
}

#[cfg(unix)]
fn number_of(directory: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(directory).map_or_else(|_| String::new(), |metadata| metadata.ino().to_string())
}

#[cfg(not(unix))]
fn number_of(_directory: &Path) -> String {
    String::new()
}

impl Holder {
    fn ours(directory: &Path) -> Self {
        let pid = std::process::id();
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Self {
            pid,
            started: start_of(pid),
            host: host(),
            boot: read("/proc/sys/kernel/random/boot_id"),
            namespace: namespace.to_string_lossy().into_owned(),
            directory: number_of(directory),
            runtime: "mangrove".to_owned(),
            system: true,
        }
    }

    fn is_running(&self) -> bool {
        let now = start_of(self.pid);
        let is_other = !now.is_empty() && !self.started.is_empty() && now != self.started;
        !is_other && exists(self.pid)
    }
}

fn state_of(directory: &Path, file: &str) -> State {
    let path = directory.join(file);
    let Ok(content) = fs::read(&path) else {
        return State::Gone;
    };
    let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
    // A time in the future counts as age zero.
    let age = modified
        .ok()
        .and_then(|modified| modified.elapsed().ok())
        .unwrap_or_default();
    let lives = |lives: bool| if lives { State::Held } else { State::Gone };
    let Ok(holder) = serde_json::from_slice::<Holder>(&content) else {
        return lives(age <= EMPTY_LOCK_AGE);
    };
    let us = Holder::ours(directory);
    if holder.directory != us.directory {
        return State::Gone;
    }
    let is_our_realm = (&holder.host, &holder.boot, &holder.namespace) == (&us.host, &us.boot, &us.namespace);
    match (is_our_realm, holder.system) {
        (true, true) if holder.is_running() => State::Informs,
        (true, _) => lives(holder.is_running()),
        (false, true) => State::Informs,
        (false, false) => lives(age <= SILENCE),
    }
}

/// Creates the file; returns `false` if it exists.
fn create(path: &Path, content: &[u8]) -> io::Result<bool> {
    match fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(content).map(|()| true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a stale lock. Of several processes that find it stale, one removes it, and none removes
/// the lock that follows.
fn remove_stale(directory: &Path, content: &[u8]) -> io::Result<()> {
    let (takeover, lock) = (directory.join(TAKEOVER_FILE), directory.join(LOCK_FILE));
    if create(&takeover, content)? {
        if state_of(directory, LOCK_FILE) == State::Gone {
            fs::remove_file(&lock)?;
        }
        fs::remove_file(&takeover)
    } else if state_of(directory, TAKEOVER_FILE) == State::Gone {
        fs::remove_file(&takeover)
    } else {
        Ok(())
    }
}

#[cfg(windows)]
fn lock_exclusive(directory: &Path) -> io::Result<Option<fs::File>> {
    use std::os::windows::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .share_mode(0);
    match options.open(directory.join("lock.exclusive")) {
        Ok(file) => Ok(Some(file)),
        // ERROR_SHARING_VIOLATION
        Err(error) if error.raw_os_error() == Some(32) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the lock file into an existing directory. Returns `None` where nothing can be written, or
/// where the lock file is not needed: then only the lock that the engine takes on the data file
/// protects the database.
pub(crate) fn lock(directory: &Path) -> Result<Option<DirectoryLock>> {
    let path = directory.join(LOCK_FILE);
    let locked = || {
        let file = directory.display().to_string();
        Error::Locked { file: file.into() }
    };
    let failed = |error: io::Error| Error::io(format!("locking {}", directory.display()), error.to_string());
    #[cfg(windows)]
    let Some(exclusive) = lock_exclusive(directory).map_err(failed)? else {
        return Err(locked());
    };
    let content = serde_json::to_vec(&Holder::ours(directory)).map_err(|error| failed(error.into()))?;
    let attempt = || -> io::Result<State> {
        if create(&path, &content)? {
            return Ok(State::Gone);
        }
        match state_of(directory, LOCK_FILE) {
            State::Gone => {}
            state => return Ok(state),
        }
        remove_stale(directory, &content)?;
        Ok(if create(&path, &content)? {
            State::Gone
        } else {
            State::Held
        })
    };
    match attempt() {
        Ok(State::Gone) => Ok(Some(DirectoryLock {
            path,
            content,
            #[cfg(windows)]
            _exclusive: exclusive,
        })),
        Ok(State::Informs) => Ok(None),
        Ok(State::Held) => Err(locked()),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(failed(error)),
    }
}
