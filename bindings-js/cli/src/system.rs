//! The machine as the JavaScript host shows it.

use std::any::Any;
use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mangrove_cli::system::{Input, Kind, NewFile, Sharing, System};
use mangrove_engine::storage::Storage;
use mangrove_engine::{AdvancedOptions, Error, Options, Result};
use mangrove_host::{HostStorage, JsStorage, clock, from_js, log_bytes, property};
use wasm_bindgen::prelude::*;

/// Descriptors of the standard streams.
const OUTPUT: u32 = 1;
const ERROR_OUTPUT: u32 = 2;

type Caught<T> = std::result::Result<T, JsValue>;

#[wasm_bindgen]
extern "C" {
    /// `Host` in `src/cli/host.ts`. Paths are as the user wrote them; files are descriptors.
    pub type Host;

    #[wasm_bindgen(method)]
    fn storage(this: &Host, directory: &str, writes: bool) -> HostStorage;
    #[wasm_bindgen(method, catch)]
    fn lock(this: &Host, directory: &str) -> Caught<Option<HostLock>>;
    #[wasm_bindgen(method, catch, js_name = createDirectory)]
    fn create_directory(this: &Host, path: &str) -> Caught<()>;
    #[wasm_bindgen(method)]
    fn kind(this: &Host, path: &str) -> u8;
    #[wasm_bindgen(method, js_name = hasName)]
    fn has_name(this: &Host, path: &str) -> bool;
    #[wasm_bindgen(method, catch)]
    fn open(this: &Host, path: &str, creates: bool) -> Caught<u32>;
    #[wasm_bindgen(method, catch)]
    fn read(this: &Host, file: u32, into: &mut [u8]) -> Caught<u32>;
    #[wasm_bindgen(method, catch)]
    fn write(this: &Host, file: u32, from: &[u8]) -> Caught<u32>;
    #[wasm_bindgen(method, catch, js_name = flushAll)]
    fn flush_all(this: &Host, file: u32, path: &str) -> Caught<()>;
    #[wasm_bindgen(method, catch)]
    fn close(this: &Host, file: u32) -> Caught<()>;
    #[wasm_bindgen(method, catch)]
    fn replace(this: &Host, from: &str, to: &str) -> Caught<()>;
    #[wasm_bindgen(method, getter, js_name = replacesOpenFiles)]
    fn replaces_open_files(this: &Host) -> bool;
    #[wasm_bindgen(method, catch, js_name = removeFile)]
    fn remove_file(this: &Host, path: &str) -> Caught<()>;
    #[wasm_bindgen(method, catch, js_name = removeDirectory)]
    fn remove_directory(this: &Host, path: &str) -> Caught<()>;
    #[wasm_bindgen(method, catch, js_name = removeTree)]
    fn remove_tree(this: &Host, path: &str) -> Caught<()>;
    #[wasm_bindgen(method, catch, js_name = readInput)]
    fn read_input(this: &Host, into: &mut [u8]) -> Caught<u32>;
    #[wasm_bindgen(method, js_name = isInputReady)]
    fn is_input_ready(this: &Host, moment_ms: f64) -> bool;
    #[wasm_bindgen(method, getter, js_name = isErrorOutputTerminal)]
    fn is_error_output_terminal(this: &Host) -> bool;
    #[wasm_bindgen(method)]
    fn random(this: &Host) -> Vec<u8>;
    #[wasm_bindgen(method)]
    fn now(this: &Host) -> f64;

    pub(crate) type HostLock;

    #[wasm_bindgen(method, catch)]
    fn release(this: &HostLock) -> Caught<()>;
}

thread_local! {
    static HOST: RefCell<Option<Rc<Host>>> = const { RefCell::new(None) };
}

pub(crate) fn install(host: Host) {
    HOST.set(Some(Rc::new(host)));
}

/// Calls the host; `run` has installed it.
fn with<R>(call: impl FnOnce(&Host) -> R) -> R {
    let host = HOST.with_borrow(Clone::clone);
    #[allow(clippy::expect_used, reason = "no input leads here")]
    call(&host.expect("run installs the host"))
}

fn text(path: &Path) -> std::borrow::Cow<'_, str> {
    path.to_string_lossy()
}

/// Returns the error that an exception of `node:fs` means.
fn failed(thrown: &JsValue) -> io::Error {
    let kind = match property(thrown, "code").as_deref() {
        Some("EEXIST" | "KV_EXISTS") => ErrorKind::AlreadyExists,
        Some("ENOENT") => ErrorKind::NotFound,
        Some("EPIPE") => ErrorKind::BrokenPipe,
        Some("ENOSPC" | "EDQUOT") => ErrorKind::StorageFull,
        _ => ErrorKind::Other,
    };
    let message = property(thrown, "message").unwrap_or_else(|| "the host failed".to_owned());
    io::Error::new(kind, message)
}

fn attempt<R>(call: impl FnOnce(&Host) -> Caught<R>) -> io::Result<R> {
    with(call).map_err(|thrown| failed(&thrown))
}

/// The JavaScript host as the tool's machine.
pub(crate) struct Hosted;

struct Lock(HostLock);

impl Drop for Lock {
    fn drop(&mut self) {
        // What is left of a lock is recognized as stale.
        let _ = self.0.release();
    }
}

/// An open file, or a standard stream.
struct File {
    descriptor: u32,
    path: String,
}

impl File {
    fn open(path: &Path, creates: bool) -> io::Result<Self> {
        let path = text(path).into_owned();
        let descriptor = attempt(|host| host.open(&path, creates))?;
        Ok(Self { descriptor, path })
    }

    fn standard(descriptor: u32) -> Self {
        let path = String::new();
        Self { descriptor, path }
    }
}

impl Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        attempt(|host| host.read(self.descriptor, into)).map(|count| count as usize)
    }
}

impl Write for File {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        attempt(|host| host.write(self.descriptor, from)).map(|count| count as usize)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for File {
    fn flush_all(&mut self) -> io::Result<()> {
        attempt(|host| host.flush_all(self.descriptor, &self.path))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.descriptor > ERROR_OUTPUT {
            // What matters was flushed.
            let _ = attempt(|host| host.close(self.descriptor));
        }
    }
}

struct StandardInput;

impl Read for StandardInput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        attempt(|host| host.read_input(into)).map(|count| count as usize)
    }
}

impl Input for StandardInput {
    fn is_ready(&mut self, moment: Duration) -> bool {
        with(|host| host.is_input_ready(moment.as_secs_f64() * 1000.0))
    }
}

fn to_error(action: &str, path: &Path, thrown: &JsValue) -> Error {
    let path = text(path);
    from_js(thrown, &path, format!("{action} {path}"))
}

fn random() -> u128 {
    <[u8; 16]>::try_from(with(Host::random)).map_or(0, u128::from_le_bytes)
}

impl System for Hosted {
    fn storage(&self, directory: &Path, sharing: Sharing) -> Arc<dyn Storage> {
        let files = with(|host| host.storage(&text(directory), sharing == Sharing::Alone));
        Arc::new(JsStorage::new(files, sharing == Sharing::BesideWriter))
    }

    fn lock(&self, directory: &Path) -> Result<Option<Box<dyn Any>>> {
        let lock =
            with(|host| host.lock(&text(directory))).map_err(|thrown| to_error("locking", directory, &thrown))?;
        Ok(lock.map(|lock| Box::new(Lock(lock)) as Box<dyn Any>))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        with(|host| host.create_directory(&text(path))).map_err(|thrown| to_error("creating", path, &thrown))
    }

    fn kind(&self, path: &Path) -> Option<Kind> {
        match with(|host| host.kind(&text(path))) {
            0 => None,
            1 => Some(Kind::File),
            2 => Some(Kind::Directory),
            _ => Some(Kind::Other),
        }
    }

    fn has_name(&self, path: &Path) -> bool {
        with(|host| host.has_name(&text(path)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(File::open(path, false)?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(File::open(path, true)?))
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        attempt(|host| host.replace(&text(from), &text(to)))
    }

    fn replaces_open_files(&self) -> bool {
        with(Host::replaces_open_files)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        attempt(|host| host.remove_file(&text(path)))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        attempt(|host| host.remove_directory(&text(path)))
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        attempt(|host| host.remove_tree(&text(path)))
    }

    fn input(&self) -> io::Result<Box<dyn Input>> {
        Ok(Box::new(StandardInput))
    }

    fn output(&self) -> Box<dyn Write> {
        Box::new(File::standard(OUTPUT))
    }

    fn error_output(&self) -> Box<dyn Write> {
        Box::new(File::standard(ERROR_OUTPUT))
    }

    fn is_error_output_terminal(&self) -> bool {
        with(Host::is_error_output_terminal)
    }

    fn options(&self) -> Options {
        let defaults = Options::default();
        Options {
            clock: clock(),
            advanced: AdvancedOptions {
                session: Some(random() as u64),
                log_bytes: Some(log_bytes(defaults.cache_bytes)),
                ..defaults.advanced
            },
            ..defaults
        }
    }

    fn random(&self) -> fn(&mut [u8]) {
        mangrove_host::secret::fill_random
    }

    fn new_id(&self) -> Option<u128> {
        Some(random())
    }

    fn now(&self) -> Duration {
        Duration::from_secs_f64(with(Host::now).max(0.0) / 1000.0)
    }
}
