//! The boundary between the engine and JavaScript: one engine per WebAssembly instance, driven by
//! binary messages.
//!
//! [`protocol`] decodes requests and encodes replies, [`session`] executes them on a database; both
//! also run natively. Only the [`Engine`] class and `mangrove-host` know JavaScript.

mod client;
mod clients;
mod difference;
mod feed;
mod filter;
mod followers;
mod idle_clients;
mod index_items;
mod pending;
pub mod protocol;
mod range;
mod report;
pub mod request;
mod rest;
mod scan;
mod schema;
pub mod session;
mod source;
mod state;
mod table;
mod upkeep;

use std::sync::Arc;

use mangrove_engine::{Compression, Database, Error, Options};
use mangrove_host::{HostStorage, JsStorage, keep_panic_message, log_bytes, to_js};
use wasm_bindgen::prelude::*;

use crate::protocol::{
    AWAITS_FLUSH, FRAME_NEWS, FRAME_PARTS, FRAME_REPLY, FRAME_REQUEST, FRAME_STATE, LACKS_REST, NEEDS_FLUSH, View,
    Writer,
};
use crate::session::{Progress, Session};

/// Buffers up to this size are kept between messages.
const KEPT_BYTES: usize = 1 << 20;
/// Longer keys are looked up with a message.
const KEY_BYTES: usize = 1 << 10;
/// Results of a lookup that are not a length: no value, and an error that only a message can
/// report.
const ABSENT: i32 = -1;
const ASK: i32 = -2;

#[wasm_bindgen]
extern "C" {
    /// Options of [`Engine::open`]; undefined ones keep their defaults.
    pub type EngineOptions;

    #[wasm_bindgen(method, getter)]
    fn create(this: &EngineOptions) -> Option<bool>;
    #[wasm_bindgen(method, getter)]
    fn exclusive(this: &EngineOptions) -> Option<bool>;
    #[wasm_bindgen(method, getter, js_name = readOnly)]
    fn read_only(this: &EngineOptions) -> Option<bool>;
    /// Another process may write to the files meanwhile.
    #[wasm_bindgen(method, getter, js_name = besideWriter)]
    fn beside_writer(this: &EngineOptions) -> Option<bool>;
    #[wasm_bindgen(method, getter, js_name = cacheBytes)]
    fn cache_bytes(this: &EngineOptions) -> Option<u32>;
    #[wasm_bindgen(method, getter, js_name = unitBytes)]
    fn unit_bytes(this: &EngineOptions) -> Option<u32>;
    #[wasm_bindgen(method, getter, js_name = nodeBytes)]
    fn node_bytes(this: &EngineOptions) -> Option<u32>;
    /// Number of commits kept for followers; 0 changes nothing.
    #[wasm_bindgen(method, getter, js_name = feedCommits)]
    fn feed_commits(this: &EngineOptions) -> Option<u32>;
    /// `"lz4"` or `"none"`. Not declared as a string, because wasm-bindgen would not check that it
    /// is one.
    #[wasm_bindgen(method, getter)]
    fn compression(this: &EngineOptions) -> JsValue;
    /// 16 random bytes: the identity of the database, if it is created, and of this opening.
    #[wasm_bindgen(method, getter, js_name = databaseId)]
    fn database_id(this: &EngineOptions) -> Option<Vec<u8>>;
}

/// Length of the frame in 32-bit words.
const FRAME_WORDS: usize = 2 * FRAME_PARTS.len();

/// An open database.
///
/// The caller copies a message into the request buffer, calls [`execute`](Engine::execute) and
/// finds the results through the frame. Each call may grow the memory, which invalidates views of
/// it.
#[wasm_bindgen]
pub struct Engine {
    session: Session,
    frame: Box<[u32; FRAME_WORDS]>,
    request: Vec<u8>,
    reply: Writer,
    state: Vec<u8>,
    news: Vec<u32>,
    client: u64,
    /// Key of a lookup without a message.
    key: Box<[u8; KEY_BYTES]>,
    value: Vec<u8>,
}

#[wasm_bindgen]
#[allow(clippy::cast_precision_loss, reason = "no counter reaches 2^53")]
impl Engine {
    /// Opens the database in `storage`; throws `{ code, message, retryable }`.
    pub fn open(storage: HostStorage, options: &EngineOptions) -> Result<Engine, JsValue> {
        keep_panic_message();
        let reserve_bytes = storage.reserve_bytes().unwrap_or_default();
        let database = to_options(options)
            .and_then(|opened| {
                let opened = Options {
                    reserve_bytes,
                    ..opened
                };
                let beside_writer = options.beside_writer().unwrap_or_default();
                Database::open(Arc::new(JsStorage::new(storage, beside_writer)), opened)
            })
            .map_err(|error| to_js(&error))?;
        Ok(Self {
            session: Session::new(database),
            frame: Box::default(),
            request: Vec::new(),
            reply: Writer::default(),
            state: Vec::new(),
            news: Vec::new(),
            client: 0,
            key: Box::new([0; KEY_BYTES]),
            value: Vec::new(),
        })
    }

    /// Returns the address of the frame: eight 32-bit words, four pairs of an address and a length
    /// in bytes. They locate the request buffer and, for the last message, its reply, the client's
    /// state if that changed, and the 32-bit numbers of the clients that have news.
    pub fn frame_ptr(&self) -> usize {
        self.frame.as_ptr() as usize
    }

    /// Makes room for a message of `len` bytes.
    pub fn reserve(&mut self, len: usize) {
        if self.request.len() < len {
            self.request.resize(len, 0);
        }
        self.locate(FRAME_REQUEST, self.request.as_ptr() as usize, self.request.len());
    }

    /// Executes the message of `len` bytes in the request buffer, number `sequence` of the client;
    /// a repeated number marks a repeated message.
    ///
    /// With `may_wait`, the message may stop at a commit that waits for a flush. The host then
    /// performs the flush that `begin_flush` describes and calls `resume`. Until then it executes
    /// no other message and leaves the request buffer unchanged.
    ///
    /// Returns `AWAITS_FLUSH` if the message waits; otherwise `NEEDS_FLUSH` if relaxed commits need
    /// a `flush`, and `LACKS_REST` if the host is to load the rest of the module.
    pub fn execute(&mut self, client: f64, sequence: f64, len: usize, may_wait: bool) -> u8 {
        self.client = to_id(client);
        self.session.select(self.client);
        self.session.begin_message(to_id(sequence));
        self.reply.reset(KEPT_BYTES);
        let message = self.request.get(..len).unwrap_or_default();
        let progress = if may_wait {
            self.session.start(message, &mut self.reply)
        } else {
            self.session.execute(message, &mut self.reply);
            Progress::Done
        };
        self.report(progress)
    }

    /// Continues the message of `len` bytes that waits for a flush, and performs the flush if the
    /// host has not. Returns as `execute`.
    pub fn resume(&mut self, len: usize) -> u8 {
        let message = self.request.get(..len).unwrap_or_default();
        let progress = self.session.resume(message, &mut self.reply);
        self.report(progress)
    }

    /// Says that this is the core of a module that was split, without its rest. Returns whether the
    /// database has indexes, so that writes need the rest.
    pub fn lack_rest(&mut self) -> bool {
        self.session.lack_rest()
    }

    /// Says that the rest of the module is loaded, or why it could not be.
    pub fn end_loading(&mut self, failure: Option<String>) {
        self.session.end_loading(failure);
    }

    /// Begins a flush that the host performs. Returns 1 for the log, 2 for the data file and then
    /// the log, 0 if there is nothing to flush.
    pub fn begin_flush(&mut self) -> u32 {
        match self.session.begin_flush() {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        }
    }

    /// Ends the host's flush; `thrown` is what it failed with, or `undefined`.
    pub fn end_flush(&mut self, thrown: &JsValue) {
        let result = if thrown.is_undefined() {
            Ok(())
        } else {
            Err(mangrove_host::from_js(thrown, "log", "flush log".to_owned()))
        };
        self.session.end_flush(result);
    }

    /// Stops waiting for the host's flush: `resume` performs its own. The host must not begin
    /// another one before `end_flush`.
    pub fn release_flush(&mut self) {
        self.session.release_flush();
    }

    fn report(&mut self, progress: Progress) -> u8 {
        if progress == Progress::AwaitsFlush {
            return AWAITS_FLUSH;
        }
        if self.request.len() > KEPT_BYTES {
            self.request = Vec::new();
            self.reserve(0);
        }
        let reply = self.reply.as_slice();
        self.locate(FRAME_REPLY, reply.as_ptr() as usize, reply.len());
        self.state.clear();
        // Client 0 is never handed over.
        if self.client != 0
            && let Some(state) = self.session.take_state(false)
        {
            self.state = state;
        }
        self.locate(FRAME_STATE, self.state.as_ptr() as usize, self.state.len());
        self.collect_news();
        let needs_flush = if self.session.needs_flush() { NEEDS_FLUSH } else { 0 };
        let lacks_rest = if self.session.rest.take_wanted() { LACKS_REST } else { 0 };
        needs_flush | lacks_rest
    }

    fn collect_news(&mut self) {
        self.news.clear();
        while let Some(client) = self.session.next_news() {
            self.news.push(u32::try_from(client).unwrap_or(0));
        }
        self.locate(FRAME_NEWS, self.news.as_ptr() as usize, self.news.len() * 4);
    }

    #[allow(clippy::cast_possible_truncation, reason = "addresses of WebAssembly have 32 bits")]
    fn locate(&mut self, part: u8, address: usize, len: usize) {
        let part = usize::from(part);
        self.frame[part] = address as u32;
        self.frame[part + 1] = len as u32;
    }

    /// Returns the address of the key buffer of `get` and `has`, which never moves.
    pub fn key_ptr(&self) -> usize {
        self.key.as_ptr() as usize
    }

    /// Returns the size of the key buffer in bytes.
    pub fn key_bytes(&self) -> usize {
        KEY_BYTES
    }

    /// Looks up the key of `len` bytes in the key buffer. Returns the length of the value, -1 if
    /// there is none, or -2 if only a message can report the outcome. With `same_state`, reads the
    /// state of the previous lookup, even if records have expired since.
    pub fn get(&mut self, view: f64, collection: u32, len: usize, same_state: bool) -> i32 {
        let key = self.key.get(..len).unwrap_or_default();
        self.value.clear();
        self.value.shrink_to(KEPT_BYTES);
        let found = self
            .session
            .get(to_view(view), collection.into(), key, same_state, &mut self.value);
        match found {
            Ok(true) => i32::try_from(self.value.len()).unwrap_or(ASK),
            Ok(false) => ABSENT,
            Err(_) => ASK,
        }
    }

    /// As `get`, but returns 1 if there is a value.
    pub fn has(&mut self, view: f64, collection: u32, len: usize, same_state: bool) -> i32 {
        let key = self.key.get(..len).unwrap_or_default();
        match self.session.has(to_view(view), collection.into(), key, same_state) {
            Ok(true) => 1,
            Ok(false) => ABSENT,
            Err(_) => ASK,
        }
    }

    /// Returns the address of the value that `get` found; valid until the next call.
    pub fn value_ptr(&self) -> usize {
        self.value.as_ptr() as usize
    }

    /// Flushes relaxed commits to disk. If that fails, the next write reports it.
    pub fn flush(&mut self) {
        self.session.flush();
    }

    /// Merges a slice of the memtables if that is worthwhile; returns whether there is more to
    /// merge. If it fails, a later commit retries.
    pub fn merge_slice(&self) -> bool {
        self.session.merge_slice()
    }

    /// Begins to serve several clients. Until `end_inheritance`, clients that were served elsewhere
    /// can resume from the current state of the database.
    pub fn begin_inheritance(&mut self) {
        self.session.begin_inheritance();
    }

    /// Ends inheritance: clients attached from now on have lost what they had open.
    pub fn end_inheritance(&mut self) {
        self.session.end_inheritance();
    }

    /// Serves the client `name`, which had open what `state` lists where it was served before.
    /// Returns its number. Throws `{ code, message, retryable }`.
    #[allow(clippy::needless_pass_by_value, reason = "the border knows no optional slices")]
    pub fn attach(&mut self, name: &str, read_only: bool, state: Option<Vec<u8>>) -> Result<f64, JsValue> {
        let id = self.session.attach(name, read_only, state.as_deref());
        id.map(|id| id as f64).map_err(|error| to_js(&error))
    }

    /// Stops serving a client and closes what it has open.
    pub fn detach(&mut self, client: f64) {
        self.session.detach(to_id(client));
    }

    /// Exports what a client has open, for `attach` elsewhere. Nothing may be committed here
    /// afterwards.
    pub fn last_state(&mut self, client: f64) -> Option<Vec<u8>> {
        self.session.select(to_id(client));
        self.session.take_state(true)
    }

    /// Returns the names of the clients whose last outcomes are stored, each followed by a line
    /// end. Throws `{ code, message, retryable }`.
    pub fn remembered(&self) -> Result<String, JsValue> {
        let names = self.session.remembered().map_err(|error| to_js(&error))?;
        let lines = names.iter().flat_map(|name| name.iter().copied().chain([b'\n']));
        Ok(String::from_utf8(lines.collect()).unwrap_or_default())
    }

    /// Removes what is stored for a client, with the next commit.
    pub fn forget(&mut self, name: &str) {
        self.session.forget(name);
    }

    /// Returns the version of the last commit.
    pub fn version(&self) -> f64 {
        self.session.version() as f64
    }
}

/// Converts a JavaScript number, which holds integers beyond 32 bits.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "they are counted from 0"
)]
fn to_id(number: f64) -> u64 {
    number as u64
}

fn to_view(number: f64) -> View {
    match to_id(number) {
        0 => View::Current,
        id => View::Opened(id),
    }
}

fn to_options(given: &EngineOptions) -> mangrove_engine::Result<Options> {
    let defaults = Options::default();
    let compression = given.compression();
    let compression = match compression.as_string().as_deref() {
        None if compression.is_undefined() => defaults.compression,
        Some("lz4") => Compression::Lz4,
        Some("none") => Compression::None,
        _ => {
            return Err(Error::InvalidArgument {
                what: "compression has to be \"lz4\" or \"none\"".into(),
            });
        }
    };
    let cache_bytes = given.cache_bytes().map_or(defaults.cache_bytes, |bytes| bytes as usize);
    let id = given.database_id().and_then(|id| <[u8; 16]>::try_from(id).ok());
    Ok(Options {
        create: given.create().unwrap_or(defaults.create),
        exclusive: given.exclusive().unwrap_or(defaults.exclusive),
        read_only: given.read_only().unwrap_or(defaults.read_only),
        cache_bytes,
        unit_bytes: given.unit_bytes().unwrap_or(defaults.unit_bytes),
        node_bytes: given.node_bytes().unwrap_or(defaults.node_bytes),
        compression,
        database_id: id.map(u128::from_le_bytes).or(defaults.database_id),
        session: id.map(|id| u128::from_le_bytes(id) as u64),
        feed_commits: given.feed_commits().map_or(defaults.feed_commits, u64::from),
        log_bytes: Some(log_bytes(cache_bytes)),
        clock: mangrove_host::clock(),
        ..defaults
    })
}

/// Returns the engine's panic message, if it panicked.
#[wasm_bindgen]
pub fn panic_message() -> Option<String> {
    mangrove_host::last_panic()
}
