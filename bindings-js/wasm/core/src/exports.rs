//! Functions of the open database that take and return numbers. They are exported as they are,
//! because wasm-bindgen would wrap each of them in as much code again.
#![allow(unsafe_code, reason = "the attribute that exports a function under its name")]

use std::mem::ManuallyDrop;

use super::{ENGINE, KEY_BYTES, to_id, to_number, with};

/// Releases the database without closing it.
#[unsafe(no_mangle)]
extern "C" fn engine_free() {
    drop(ManuallyDrop::into_inner(ENGINE.take()));
}

/// Returns the address of the frame: ten 32-bit words. Four pairs of an address and a length in
/// bytes locate the request buffer and, for the last message, its reply, the client's state if that
/// changed, and the 32-bit numbers of the clients to wake. The fifth pair says where a message was
/// cut, and after how many replies.
#[unsafe(no_mangle)]
extern "C" fn engine_frame_ptr() -> usize {
    with(|engine| engine.frame.as_ptr() as usize)
}

/// Makes room for a message of `len` bytes; returns whether there is any. If not, the reply says so.
#[unsafe(no_mangle)]
extern "C" fn engine_reserve(len: usize) -> bool {
    with(|engine| engine.reserve(len))
}

/// Executes the message of `len` bytes in the request buffer, number `sequence` of the client; a
/// repeated number marks a repeated message.
///
/// With `flushing` 1, the message may stop at a commit that waits for a flush. The host then performs
/// the flush that `begin_flush` describes and calls `resume`. Until then it executes no other
/// message and leaves the request buffer unchanged. With 2, the message does not stop, but its reply
/// may have to wait for a flush. With 3, the message stops only where with 2 it would flush.
///
/// Returns `AWAITS_FLUSH` if the message waits; otherwise `OWES_FLUSH` if the reply has to, `NEEDS_FLUSH` if relaxed commits need a
/// `flush`, `LACKS_LAZY` if the host is to load the lazy part of the module, and `IS_CUT` if the reply is
/// full: the host executes the rest of the message, which is still in the request buffer, by another
/// call.
#[unsafe(no_mangle)]
extern "C" fn engine_execute(client: f64, sequence: f64, len: usize, flushing: u8) -> u8 {
    with(|engine| engine.execute_buffered(client, sequence, len, flushing))
}

/// Continues the message of `len` bytes that waits for a flush, and performs the flush if the host
/// has not. Returns as `execute`.
#[unsafe(no_mangle)]
extern "C" fn engine_resume(len: usize) -> u8 {
    with(|engine| engine.resume(len))
}

/// Says that this is the core of a module that was split, without its lazy part. Returns whether the
/// database has indexes, so that writes need the lazy part.
#[unsafe(no_mangle)]
extern "C" fn engine_lacks_lazy() -> bool {
    with(|engine| engine.session.lacks_lazy())
}

/// Begins a flush that the host performs. Returns 1 for the log, 2 for the data file and then the
/// log, 0 if there is nothing to flush.
#[unsafe(no_mangle)]
extern "C" fn engine_begin_flush() -> u32 {
    with(|engine| match engine.session.begin_flush() {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    })
}

/// Stops waiting for the host's flush: `resume` performs its own. The host must not begin another
/// one before `end_flush`.
#[unsafe(no_mangle)]
extern "C" fn engine_release_flush() {
    with(|engine| engine.session.release_flush());
}

/// Returns the address of the key buffer of `get` and `has`, which never moves.
#[unsafe(no_mangle)]
extern "C" fn engine_key_ptr() -> usize {
    with(|engine| engine.key.as_ptr() as usize)
}

/// Returns the size of the key buffer in bytes.
#[unsafe(no_mangle)]
extern "C" fn engine_key_bytes() -> usize {
    KEY_BYTES
}

/// Looks up the key of `len` bytes in the key buffer. Returns the length of the value, -1 if there
/// is none, or -2 if only a message can report the outcome. With `same_state`, reads the state of
/// the previous lookup, even if records have expired since.
#[unsafe(no_mangle)]
extern "C" fn engine_get(view: f64, collection: u32, len: usize, same_state: bool) -> i32 {
    with(|engine| engine.get(view, collection, len, same_state))
}

/// As `get`, but returns 1 if there is a value.
#[unsafe(no_mangle)]
extern "C" fn engine_has(view: f64, collection: u32, len: usize, same_state: bool) -> i32 {
    with(|engine| engine.has(view, collection, len, same_state))
}

/// Returns the address of the value that `get` found; valid until the next call.
#[unsafe(no_mangle)]
extern "C" fn engine_value_ptr() -> usize {
    with(|engine| engine.value.as_ptr() as usize)
}

/// By this export the host knows a module with encryption.
///
/// Returns the length of the database's sealed key, which `value_ptr` then locates; 0 if it is not
/// encrypted.
#[cfg(feature = "encryption")]
#[unsafe(no_mangle)]
extern "C" fn engine_sealed_key() -> usize {
    with(|engine| {
        let sealed = engine.session.sealed_key();
        engine.value.clear();
        engine
            .value
            .extend_from_slice(sealed.as_ref().map_or(&[], |key| key.as_bytes()));
        engine.value.len()
    })
}

/// Flushes relaxed commits to disk. If that fails, the next write reports it.
#[unsafe(no_mangle)]
extern "C" fn engine_flush() {
    with(|engine| engine.session.flush());
}

/// Merges a slice of the memtables if that is worthwhile; returns whether there is more to merge.
/// If it fails, a later commit retries.
#[unsafe(no_mangle)]
extern "C" fn engine_merge_slice() -> bool {
    with(|engine| engine.session.merge_slice())
}

/// Says whether the first client leaves the database open for others when it closes it.
#[unsafe(no_mangle)]
extern "C" fn engine_keep_open(keeps_open: bool) {
    with(|engine| engine.session.keep_open(keeps_open));
}

/// Begins to serve several clients. Until `end_inheritance`, clients that were served elsewhere can
/// resume from the current state of the database.
#[unsafe(no_mangle)]
extern "C" fn engine_begin_inheritance() {
    with(|engine| engine.session.begin_inheritance(engine.opening));
}

/// Ends inheritance: clients attached from now on have lost what they had open.
#[unsafe(no_mangle)]
extern "C" fn engine_end_inheritance() {
    with(|engine| engine.session.end_inheritance());
}

/// Stops serving a client and closes what it has open.
#[unsafe(no_mangle)]
extern "C" fn engine_detach(client: f64) {
    with(|engine| engine.session.detach(to_id(client)));
}

/// Returns the version of the last commit.
#[unsafe(no_mangle)]
extern "C" fn engine_version() -> f64 {
    with(|engine| to_number(engine.session.version()))
}
