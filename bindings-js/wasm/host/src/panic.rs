//! The panic message of the engine, kept across the trap.

use std::cell::RefCell;

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the message of a panic for the code that catches the trap, which itself says nothing.
pub fn keep_panic_message() {
    std::panic::set_hook(Box::new(|info| {
        PANIC.with(|message| {
            if let Ok(mut message) = message.try_borrow_mut() {
                *message = Some(info.to_string());
            }
        });
    }));
}

/// Returns the message of the engine's panic, if there was one.
#[must_use]
pub fn last_panic() -> Option<String> {
    PANIC.with_borrow(Clone::clone)
}
