//! What the engine says before it traps.

use std::cell::RefCell;

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic ends in a trap that says nothing; its message is left for who catches the trap.
pub fn keep_panic_message() {
    std::panic::set_hook(Box::new(|info| {
        PANIC.with(|message| {
            if let Ok(mut message) = message.try_borrow_mut() {
                *message = Some(info.to_string());
            }
        });
    }));
}

/// What the engine said before it trapped, if anything.
#[must_use]
pub fn last_panic() -> Option<String> {
    PANIC.with_borrow(Clone::clone)
}
