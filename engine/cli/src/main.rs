//! `mangrove`: the command line tool of Mangrove.

use std::process::ExitCode;

use mangrove_cli::native::NATIVE;
use mangrove_cli::{fail_to_start, run};

/// Reading nested values recurses; this is enough for the deepest accepted ones.
const STACK_BYTES: usize = 256 << 20;

fn main() -> ExitCode {
    let work = || run(&NATIVE, std::env::args_os());
    match std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work) {
        Ok(thread) => thread.join().map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => fail_to_start(&NATIVE, &error).into(),
    }
}
