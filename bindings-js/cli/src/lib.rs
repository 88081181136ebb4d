//! The command line tool over a JavaScript host: its [`System`] calls the functions of an object
//! that Node, Deno and Bun give.

mod system;

use std::ffi::OsString;

use mangrove_cli::system::System;
use mangrove_host::keep_panic_message;
use wasm_bindgen::prelude::*;

pub use system::Host;
use system::Hosted;

/// Runs a command line, which begins with the program's name; returns the exit code. Called once
/// for each instance of the module.
#[wasm_bindgen]
pub fn run(host: Host, arguments: Vec<String>) -> u8 {
    static HOSTED: Hosted = Hosted;
    keep_panic_message();
    system::install(host);
    let system: &'static dyn System = &HOSTED;
    mangrove_cli::run(system, arguments.into_iter().map(OsString::from))
}

/// Returns the message of the tool's panic, if there was one.
#[wasm_bindgen]
pub fn panic_message() -> Option<String> {
    mangrove_host::last_panic()
}
