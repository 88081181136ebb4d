//! The engine's storage over JavaScript objects.
//!
//! The engine may run in several threads and requires a storage that can, too; JavaScript objects
//! belong to one thread. They stay in a registry of this thread, which in WebAssembly is the only
//! one, and the engine gets their numbers.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::storage::{Storage, StorageFile, Watch};
use mangrove_engine::{Error, Result};
use wasm_bindgen::prelude::*;

use crate::errors::from_js;

#[wasm_bindgen]
extern "C" {
    /// `CustomStorage` of the TypeScript API.
    pub type HostStorage;

    #[wasm_bindgen(method, catch)]
    fn open(this: &HostStorage, file: &str) -> std::result::Result<HostFile, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn list(this: &HostStorage) -> std::result::Result<Vec<String>, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn remove(this: &HostStorage, file: &str) -> std::result::Result<(), JsValue>;
    /// [`AdvancedOptions::reserve_bytes`](mangrove_engine::AdvancedOptions::reserve_bytes) that suit it.
    #[wasm_bindgen(method, getter, js_name = reserveBytes)]
    pub fn reserve_bytes(this: &HostStorage) -> Option<u32>;
    /// Whether others may write to the storage's files in spite of its lock. If so, the files are
    /// watched; with 2, before each write.
    #[wasm_bindgen(method, getter)]
    fn watch(this: &HostStorage) -> Option<u32>;

    /// `StorageFile` of the TypeScript API.
    pub type HostFile;

    #[wasm_bindgen(method, catch)]
    fn read(this: &HostFile, at: f64, into: &mut [u8]) -> std::result::Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn write(this: &HostFile, at: f64, from: &[u8]) -> std::result::Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn flush(this: &HostFile) -> std::result::Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn size(this: &HostFile) -> std::result::Result<f64, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn truncate(this: &HostFile, size: f64) -> std::result::Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn close(this: &HostFile) -> std::result::Result<(), JsValue>;
    /// Throws `KV_EVICTED` if the file's name no longer leads to it. A storage that is watched has
    /// it.
    #[wasm_bindgen(method, catch, js_name = checkName)]
    fn check_name(this: &HostFile, max_age_ms: u32) -> std::result::Result<(), JsValue>;
}

thread_local! {
    /// Never dropped with the thread, as each access would check whether it was.
    static OBJECTS: RefCell<ManuallyDrop<Vec<Option<Rc<JsValue>>>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// An object's number in the registry; dropping it removes the object.
struct Handle(usize);

impl Handle {
    fn new(object: JsValue) -> Self {
        OBJECTS.with_borrow_mut(|objects| {
            let free = objects.iter().position(Option::is_none).unwrap_or_else(|| {
                objects.push(None);
                objects.len() - 1
            });
            objects[free] = Some(Rc::new(object));
            Self(free)
        })
    }

    #[inline(never)]
    fn get(&self) -> Option<Rc<JsValue>> {
        OBJECTS.with_borrow(|objects| objects.get(self.0)?.clone())
    }

    fn with<T: JsCast, R>(&self, call: impl FnOnce(&T) -> R) -> Option<R> {
        self.get().map(|object| call(object.unchecked_ref()))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let object = OBJECTS.with_borrow_mut(|objects| objects.get_mut(self.0).and_then(Option::take));
        drop(object);
    }
}

/// A `CustomStorage`.
pub struct JsStorage {
    handle: Handle,
    beside_writer: bool,
    watch: Watch,
}

impl JsStorage {
    /// Wraps a storage. `beside_writer` says that someone else may write to its files meanwhile.
    #[must_use]
    pub fn new(storage: HostStorage, beside_writer: bool) -> Self {
        let watch = match storage.watch() {
            Some(1) => Watch::Flushes,
            Some(2) => Watch::Writes,
            _ => Watch::Nothing,
        };
        Self {
            handle: Handle::new(storage.into()),
            beside_writer,
            watch,
        }
    }

    fn call<R>(
        &self,
        action: &str,
        name: &str,
        call: impl FnOnce(&HostStorage) -> std::result::Result<R, JsValue>,
    ) -> Result<R> {
        done(self.handle.with(call), action, name, None)
    }
}

/// Returns the result of a call to an object, which is `None` if the object was released.
fn done<R>(
    result: Option<std::result::Result<R, JsValue>>,
    action: &str,
    name: &str,
    offset: Option<u64>,
) -> Result<R> {
    match result {
        Some(Ok(result)) => Ok(result),
        Some(Err(thrown)) => Err(from_js(&thrown, name, context(action, name, offset))),
        None => Err(Error::Closed),
    }
}

#[cold]
#[inline(never)]
fn context(action: &str, name: &str, offset: Option<u64>) -> String {
    match offset {
        Some(offset) => [action, " ", name, " at ", &offset.to_string()].concat(),
        None => [action, " ", name].concat(),
    }
}

impl Storage for JsStorage {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        if !create && !self.exists(name)? {
            return Err(Error::NotFound { what: name.into() });
        }
        let file = self.call("open", name, |storage| storage.open(name))?;
        let mut file = JsFile::new(file, name)?;
        file.is_watched = self.watch != Watch::Nothing;
        Ok(Arc::new(file))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let names = self.call("list files for", name, HostStorage::list)?;
        Ok(names.iter().any(|found| found == name))
    }

    fn is_beside_writer(&self) -> bool {
        self.beside_writer
    }

    fn watch(&self) -> Watch {
        self.watch
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.call("remove", name, |storage| storage.remove(name))
    }
}

/// A `StorageFile`.
pub struct JsFile {
    handle: Handle,
    name: String,
    /// Kept here, as asking the host costs as much as reading.
    size: AtomicU64,
    /// Whether it has the method `checkName`.
    is_watched: bool,
}

impl JsFile {
    /// Wraps an open file, which errors call `name`.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot tell its size.
    pub fn new(file: HostFile, name: &str) -> Result<Self> {
        let file = Self {
            handle: Handle::new(file.into()),
            name: name.to_owned(),
            size: AtomicU64::new(0),
            is_watched: false,
        };
        file.ask_size()?;
        Ok(file)
    }

    fn call<R>(
        &self,
        action: &str,
        offset: Option<u64>,
        call: impl FnOnce(&HostFile) -> std::result::Result<R, JsValue>,
    ) -> Result<R> {
        done(self.handle.with(call), action, &self.name, offset)
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a whole number below 2^53"
    )]
    fn ask_size(&self) -> Result<()> {
        let size = self.call("size of", None, HostFile::size)?;
        if !(0.0..9_007_199_254_740_992.0).contains(&size) || size.fract() != 0.0 {
            return Err(Error::io(
                context("size of", &self.name, None),
                "the storage did not return a whole number",
            ));
        }
        self.size.store(size as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns a file offset as a double; offsets are far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "file sizes are checked to be below 2^53")]
fn number(offset: u64) -> f64 {
    offset as f64
}

impl StorageFile for JsFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if offset.saturating_add(into.len() as u64) > self.size.load(Ordering::Relaxed) {
            return Err(Error::io(
                context("read", &self.name, Some(offset)),
                "the file ends before",
            ));
        }
        if into.is_empty() {
            return Ok(());
        }
        self.call("read", Some(offset), |file| file.read(number(offset), into))
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        let result = self.call("write", Some(offset), |file| file.write(number(offset), from));
        if result.is_ok() {
            self.size.fetch_max(offset + from.len() as u64, Ordering::Relaxed);
        } else {
            // Part of it may have been written.
            let _ = self.ask_size();
        }
        result
    }

    fn flush(&self) -> Result<()> {
        self.call("flush", None, HostFile::flush)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.size.load(Ordering::Relaxed))
    }

    fn current_len(&self) -> Result<u64> {
        self.ask_size()?;
        self.len()
    }

    fn check_name(&self, max_age_ms: u32) -> Result<()> {
        if !self.is_watched {
            return Ok(());
        }
        self.call("find", None, |file| file.check_name(max_age_ms))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let result = self.call("resize", Some(len), |file| file.truncate(number(len)));
        if result.is_ok() {
            self.size.store(len, Ordering::Relaxed);
        } else {
            let _ = self.ask_size();
        }
        result
    }
}

impl Drop for JsFile {
    fn drop(&mut self) {
        // Data that was not flushed was not promised.
        let _ = self.handle.with(HostFile::close);
    }
}
