//! The boundary between the engine and JavaScript: one engine per WebAssembly instance, driven by
//! binary messages.
//!
//! [`protocol`] decodes requests and encodes replies, [`session`] executes them on a database; both
//! also run natively. Only this file, `exports` and `mangrove-host` know JavaScript.

mod client;
mod clients;
mod difference;
mod exports;
mod feed;
mod filter;
mod followers;
mod idle_clients;
mod index_items;
mod lazy;
mod maintenance;
mod pending;
pub mod protocol;
mod range;
mod report;
pub mod request;
mod scan;
mod schema;
mod secret;
pub mod session;
mod source;
mod state;
mod table;

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use mangrove_engine::{AdvancedOptions, Compression, Database, Options};
#[cfg(feature = "encryption")]
use mangrove_host::secret::to_key;
use mangrove_host::{HostStorage, JsStorage, keep_panic_message, log_bytes, to_js};
use wasm_bindgen::prelude::*;

use crate::protocol::{
    AWAITS_FLUSH, FRAME_CUT, FRAME_PARTS, FRAME_REPLY, FRAME_REQUEST, FRAME_STATE, FRAME_WAKES, IS_CUT, LACKS_LAZY,
    NEEDS_FLUSH, OWES_FLUSH, View, Writer,
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

/// Flags of [`open`].
const CREATE: u32 = 1;
const EXCLUSIVE: u32 = 1 << 1;
const READ_ONLY: u32 = 1 << 2;
/// Another process may write to the files meanwhile.
const BESIDE_WRITER: u32 = 1 << 3;
const LZ4: u32 = 1 << 4;
const UNCOMPRESSED: u32 = 1 << 5;
/// Opens nothing, but checks a secret; see [`secret::check`].
#[cfg(feature = "encryption")]
const CHECK: u32 = 1 << 6;

/// Length of the frame in 32-bit words.
const FRAME_WORDS: usize = 2 * FRAME_PARTS.len();

thread_local! {
    /// The database that this instance has open. A value to be dropped with the thread would have each
    /// access check whether it was; nobody drops this one.
    static ENGINE: RefCell<ManuallyDrop<Option<Engine>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// An open database.
///
/// The caller copies a message into the request buffer, calls [`execute_buffered`](Engine::execute_buffered) and
/// finds the results through the frame. Each call may grow the memory, which invalidates views of
/// it.
struct Engine {
    session: Session,
    frame: Box<[u32; FRAME_WORDS]>,
    request: Vec<u8>,
    reply: Writer,
    state: Vec<u8>,
    wakes: Vec<u32>,
    client: u64,
    /// A random number of this opening of the database.
    opening: u64,
    /// Key of a lookup without a message.
    key: Box<[u8; KEY_BYTES]>,
    value: Vec<u8>,
}

impl Engine {
    fn new(database: Database, opening: u64) -> Self {
        Self {
            session: Session::new(database),
            frame: Box::default(),
            request: Vec::new(),
            reply: Writer::default(),
            state: Vec::new(),
            wakes: Vec::new(),
            client: 0,
            opening,
            key: Box::new([0; KEY_BYTES]),
            value: Vec::new(),
        }
    }

    /// See [`exports::engine_reserve`].
    fn reserve(&mut self, len: usize) -> bool {
        let more = len.saturating_sub(self.request.len());
        let is_room = self.request.try_reserve_exact(more).is_ok();
        if is_room && more > 0 {
            self.request.resize(len, 0);
        }
        self.locate(FRAME_REQUEST, self.request.as_ptr() as usize, self.request.len());
        if !is_room {
            self.refuse();
        }
        is_room
    }

    /// Makes the reply to a message for which there is no room.
    #[cold]
    fn refuse(&mut self) {
        self.reply.reset(KEPT_BYTES);
        let what = "the engine's memory has no room for this call; write large values in parts";
        self.reply.refusal("KV_VALUE_TOO_LARGE", what);
        self.locate_reply();
        // Those of another message, perhaps of another client.
        self.locate(FRAME_STATE, 0, 0);
        self.locate(FRAME_WAKES, 0, 0);
    }

    fn locate_reply(&mut self) {
        let reply = self.reply.as_slice();
        self.locate(FRAME_REPLY, reply.as_ptr() as usize, reply.len());
    }

    /// See [`exports::engine_execute`].
    fn execute_buffered(&mut self, client: f64, sequence: f64, len: usize, flushing: u8) -> u8 {
        self.client = to_id(client);
        self.session.select(self.client);
        self.session.begin_message(to_id(sequence));
        self.reply.reset(KEPT_BYTES);
        let message = self.request.get(..len).unwrap_or_default();
        match flushing {
            1 => {
                let progress = self.session.start(message, &mut self.reply);
                self.report(progress)
            }
            2 | 3 => {
                let progress = if flushing == 2 {
                    self.session.execute_owing(message, &mut self.reply)
                } else {
                    self.session.start_owing(message, &mut self.reply)
                };
                let owes_flush = if self.session.owes_flush() { OWES_FLUSH } else { 0 };
                self.report(progress) | owes_flush
            }
            _ => {
                let progress = self.session.execute_message(message, &mut self.reply);
                self.report(progress)
            }
        }
    }

    /// See [`exports::engine_resume`].
    fn resume(&mut self, len: usize) -> u8 {
        let message = self.request.get(..len).unwrap_or_default();
        let progress = self.session.resume(message, &mut self.reply);
        self.report(progress)
    }

    fn report(&mut self, progress: Progress) -> u8 {
        if progress == Progress::AwaitsFlush {
            return AWAITS_FLUSH;
        }
        let mut is_cut = 0;
        if let Progress::Cut { at, replies } = progress {
            // The host reads the rest of the request from here.
            self.locate(FRAME_CUT, at, replies);
            is_cut = IS_CUT;
        } else if self.request.len() > KEPT_BYTES {
            self.request = Vec::new();
            self.reserve(0);
        }
        self.locate_reply();
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
        let lacks_lazy = if self.session.lazy.take_wanted() { LACKS_LAZY } else { 0 };
        needs_flush | lacks_lazy | is_cut
    }

    fn collect_news(&mut self) {
        self.wakes.clear();
        while let Some(client) = self.session.next_to_wake() {
            self.wakes.push(u32::try_from(client).unwrap_or(0));
        }
        self.locate(FRAME_WAKES, self.wakes.as_ptr() as usize, self.wakes.len() * 4);
    }

    #[allow(clippy::cast_possible_truncation, reason = "addresses of WebAssembly have 32 bits")]
    fn locate(&mut self, part: u8, address: usize, len: usize) {
        let part = usize::from(part);
        self.frame[part] = address as u32;
        self.frame[part + 1] = len as u32;
    }

    /// See [`exports::engine_get`].
    fn get(&mut self, view: f64, collection: u32, len: usize, same_state: bool) -> i32 {
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

    /// See [`exports::engine_has`].
    fn has(&mut self, view: f64, collection: u32, len: usize, same_state: bool) -> i32 {
        let key = self.key.get(..len).unwrap_or_default();
        match self.session.has(to_view(view), collection.into(), key, same_state) {
            Ok(true) => 1,
            Ok(false) => ABSENT,
            Err(_) => ASK,
        }
    }
}

/// Calls `work` with the open database. The caller has opened one, and is not called by it.
fn with<R>(work: impl FnOnce(&mut Engine) -> R) -> R {
    ENGINE.with_borrow_mut(|engine| work(engine.as_mut().expect("a database is open")))
}

/// Opens the database in `storage`; throws `{ code, message, retryable }`. What is not given keeps
/// its default. `feed_commits` is the number of commits kept for followers; 0 changes nothing.
/// `opening` are 16 random bytes, the identity of the database, if it is created, and of this
/// opening; then the secret of an encrypted database, see [`mangrove_host::secret`]. The host gives
/// none to a module without encryption, which would have to create a plain database: it panics.
#[wasm_bindgen]
pub fn open(
    storage: HostStorage,
    flags: u32,
    cache_bytes: Option<u32>,
    unit_bytes: Option<u32>,
    node_bytes: Option<u32>,
    feed_commits: u32,
    opening: &[u8],
) -> Result<(), JsValue> {
    keep_panic_message();
    #[cfg(feature = "encryption")]
    if flags & CHECK != 0 {
        return secret::check(opening).map_err(|error| to_js(&error));
    }
    let defaults = Options::default();
    let cache_bytes = cache_bytes.map_or(defaults.cache_bytes, |bytes| bytes as usize);
    #[cfg(feature = "encryption")]
    let (key, opening) = {
        let (random, secret) = opening.split_at_checked(16).unwrap_or_default();
        (to_key(secret).map_err(|error| to_js(&error))?, random)
    };
    let id = u128::from_le_bytes(opening.try_into().expect("a secret needs a module with encryption"));
    let options = Options {
        create: flags & CREATE != 0,
        exclusive: flags & EXCLUSIVE != 0,
        read_only: flags & READ_ONLY != 0,
        cache_bytes,
        compression: match flags & (LZ4 | UNCOMPRESSED) {
            LZ4 => Compression::Lz4,
            UNCOMPRESSED => Compression::None,
            _ => defaults.compression,
        },
        feed_commits: feed_commits.into(),
        clock: mangrove_host::clock(),
        #[cfg(feature = "encryption")]
        key,
        #[cfg(not(feature = "encryption"))]
        key: None,
        advanced: AdvancedOptions {
            unit_bytes: unit_bytes.unwrap_or(defaults.advanced.unit_bytes),
            node_bytes: node_bytes.unwrap_or(defaults.advanced.node_bytes),
            database_id: Some(id),
            session: Some(id as u64),
            log_bytes: Some(log_bytes(cache_bytes)),
            reserve_bytes: storage.reserve_bytes().unwrap_or_default(),
        },
    };
    let storage = JsStorage::new(storage, flags & BESIDE_WRITER != 0);
    let database = Database::open(Arc::new(storage), options).map_err(|error| to_js(&error))?;
    ENGINE.set(ManuallyDrop::new(Some(Engine::new(database, id as u64))));
    Ok(())
}

/// Says that the lazy part of the module is loaded, or why it could not be.
#[wasm_bindgen]
pub fn end_loading(failure: Option<String>) {
    with(|engine| engine.session.end_loading(failure));
}

/// Ends the host's flush; `thrown` is what it failed with, or `undefined`. Returns why nothing was
/// acknowledged, if so, as `{ code, message, retryable }`.
#[wasm_bindgen]
pub fn end_flush(thrown: &JsValue) -> JsValue {
    let result = if thrown.is_undefined() {
        Ok(())
    } else {
        Err(mangrove_host::from_js(thrown, "log", "flush log".to_owned()))
    };
    let ended = with(|engine| engine.session.end_flush(result));
    ended.map_or_else(|error| to_js(&error), |()| JsValue::UNDEFINED)
}

/// Serves the client `name`, which had open what `state` lists where it was served before. Returns
/// its number. Throws `{ code, message, retryable }`.
#[wasm_bindgen]
#[allow(clippy::needless_pass_by_value, reason = "the border knows no optional slices")]
pub fn attach(name: &str, read_only: bool, state: Option<Vec<u8>>) -> Result<f64, JsValue> {
    let id = with(|engine| engine.session.attach(name, read_only, state.as_deref()));
    id.map(to_number).map_err(|error| to_js(&error))
}

/// Exports what a client has open, for `attach` elsewhere. Nothing may be committed here
/// afterwards.
#[wasm_bindgen]
pub fn last_state(client: f64) -> Option<Vec<u8>> {
    with(|engine| {
        engine.session.select(to_id(client));
        engine.session.take_state(true)
    })
}

/// Returns the names of the clients whose last outcomes are stored, each followed by a line end.
/// Throws `{ code, message, retryable }`.
#[wasm_bindgen]
pub fn remembered() -> Result<String, JsValue> {
    let names = with(|engine| engine.session.remembered()).map_err(|error| to_js(&error))?;
    let lines = names.iter().flat_map(|name| name.iter().copied().chain([b'\n']));
    Ok(String::from_utf8(lines.collect()).unwrap_or_default())
}

/// Removes what is stored for a client, with the next commit.
#[wasm_bindgen]
pub fn forget(name: &str) {
    with(|engine| engine.session.forget(name));
}

#[allow(clippy::cast_precision_loss, reason = "no counter reaches 2^53")]
fn to_number(count: u64) -> f64 {
    count as f64
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

/// Returns the engine's panic message, if it panicked.
#[wasm_bindgen]
pub fn panic_message() -> Option<String> {
    mangrove_host::last_panic()
}
