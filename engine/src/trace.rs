//! Events for a program that wants to see what the engine does, with the feature `tracing`.
//!
//! All have the target `mangrove_engine`. Without the feature an event compiles to nothing, its
//! fields included.

/// Emits an event: level, message, then fields.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $message:literal, $($field:ident = $value:expr),+ $(,)?) => {
        tracing::event!(target: "mangrove_engine", tracing::Level::$level, $($field = $value,)+ $message)
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($($event:tt)*) => {};
}

pub(crate) use event;
