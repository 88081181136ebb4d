//! Shared parts of the WebAssembly modules: the engine's storage over JavaScript objects,
//! conversion of errors into and out of JavaScript, reports as JSON, the clock, and the allocator.

#[cfg(target_arch = "wasm32")]
mod alloc;
#[cfg(any(target_arch = "wasm32", test))]
mod compare;
mod errors;
pub mod json;
mod panic;
#[cfg(feature = "encryption")]
pub mod secret;
mod storage;

pub use errors::{from_js, to_js};
pub use panic::{keep_panic_message, last_panic};
pub use storage::{HostFile, HostStorage, JsFile, JsStorage};

use mangrove_engine::Clock;
use wasm_bindgen::prelude::*;

/// Returns the length of both halves of the log beside a cache of `cache_bytes`. It is half of the
/// cache, as natively, but within what a quota, which counts the log, can bear.
#[must_use]
pub fn log_bytes(cache_bytes: usize) -> u32 {
    (cache_bytes / 2).clamp(8 << 20, 64 << 20) as u32
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = Date, js_name = now)]
    fn date_now() -> f64;
}

/// Returns milliseconds since 1970.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a clock before 1970 is treated as 1970"
)]
fn now() -> u64 {
    date_now() as u64
}

/// Refuses the secret of an encrypted database, of which a module without encryption would otherwise
/// make a plain one.
///
/// # Errors
/// [`Error::InvalidArgument`](mangrove_engine::Error::InvalidArgument) unless it is empty.
pub fn refuse_secret(secret: &[u8]) -> mangrove_engine::Result<Option<mangrove_engine::Key>> {
    if secret.is_empty() {
        return Ok(None);
    }
    Err(mangrove_engine::Error::InvalidArgument {
        what: "the module given as wasm has no encryption; give the one whose name has \"encrypted\"".into(),
    })
}

/// Returns JavaScript's clock.
#[must_use]
pub fn clock() -> Clock {
    Clock::new(now)
}
