//! The time of day, which decides which records have expired.

use std::fmt;
use std::sync::Arc;

/// A source of the time, in milliseconds since 1970.
///
/// It is passed in, for tests and for hosts without a clock in the standard library.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// Creates a clock that calls `now`.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> u64 {
        (self.0)()
    }
}

impl Default for Clock {
    /// The system's clock. WebAssembly has none: there the clock stands still in 1970, and nothing
    /// expires.
    fn default() -> Self {
        Self::new(system_time)
    }
}

#[cfg(not(target_family = "wasm"))]
fn system_time() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(target_family = "wasm")]
fn system_time() -> u64 {
    0
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
