//! The lock file of the JavaScript package. Node has no file locks that end with their process, so that it cannot see the engine's;
//! here both are taken. The content and the way a lock is taken over are those of `bindings-js/src/storage/node-lock.ts`.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mangrove_engine::Error;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

const LOCK_FILE: &str = "lock";
/// Held for the moment in which a lock is taken over.
const TAKEOVER_FILE: &str = "lock.takeover";
/// A lock without content was created a moment ago, or its writer died right then.
const EMPTY_LOCK_AGE: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    /// When the process was started, where the system tells: process ids are used again.
    #[serde(default)]
    started: String,
}

/// A directory that is locked until this is dropped.
#[derive(Debug)]
pub(crate) struct DirectoryLock(PathBuf);

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Boot and start time of a process; empty where the system does not tell.
fn start_of(pid: u32) -> String {
    let read = || {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything; the start time is the 20th field after it.
        let (_, fields) = stat.rsplit_once(") ")?;
        Some(format!("{}/{}", boot.trim(), fields.split(' ').nth(19)?))
    };
    read().unwrap_or_default()
}

#[cfg(unix)]
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // Anything but "no such process", such as a process of another user, is somebody.
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn exists(_pid: u32) -> bool {
    true
}

fn is_alive(holder: &Holder) -> bool {
    let now = start_of(holder.pid);
    let is_other = !now.is_empty() && !holder.started.is_empty() && now != holder.started;
    !is_other && exists(holder.pid)
}

fn is_stale(path: &Path) -> bool {
    let Ok(content) = fs::read(path) else { return false };
    if let Ok(holder) = serde_json::from_slice(&content) {
        return !is_alive(&holder);
    }
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = modified.ok().and_then(|modified| modified.elapsed().ok());
    age.is_some_and(|age| age > EMPTY_LOCK_AGE)
}

/// Creates the file; `false` if it is there already.
fn create(path: &Path) -> io::Result<bool> {
    let pid = std::process::id();
    let holder = Holder {
        pid,
        started: start_of(pid),
    };
    match fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => {
            file.write_all(&serde_json::to_vec(&holder)?)?;
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a stale lock. Of several processes that find it stale one does so, and none removes the lock that follows.
fn remove_stale(directory: &Path) -> io::Result<()> {
    let (takeover, lock) = (directory.join(TAKEOVER_FILE), directory.join(LOCK_FILE));
    if create(&takeover)? {
        if is_stale(&lock) {
            fs::remove_file(&lock)?;
        }
        fs::remove_file(&takeover)
    } else if is_stale(&takeover) {
        fs::remove_file(&takeover)
    } else {
        Ok(())
    }
}

/// Locks a directory that exists. Where nothing can be written there is nobody to be locked out.
pub(crate) fn lock(directory: &Path) -> Result<Option<DirectoryLock>> {
    let path = directory.join(LOCK_FILE);
    let attempt = || {
        if create(&path)? {
            return Ok(true);
        }
        if !is_stale(&path) {
            return Ok(false);
        }
        remove_stale(directory)?;
        create(&path)
    };
    match attempt() {
        Ok(true) => Ok(Some(DirectoryLock(path))),
        Ok(false) => {
            let file = directory.display().to_string();
            Err(Error::Locked { file }.into())
        }
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(Failure::io(&format!("locking {}", directory.display()), &error)),
    }
}
