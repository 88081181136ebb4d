//! `archive`, and `restore --at`: both need the network, which only the npm tool has.

use std::ffi::{OsStr, OsString};

use clap::Args;

use crate::failure::{Failure, Result};

#[derive(Args)]
#[command(after_help = "Only the npm tool has a network: npx @mangrove-kv/cli archive --help")]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run(_: &Arguments) -> Result<()> {
    Err(unsupported("archive"))
}

/// Fails if a command line, which begins with the program's name, restores from an archive.
pub(crate) fn refuse_restore(arguments: &[OsString]) -> Result<()> {
    let is_at = |argument: &OsString| {
        let name = argument.as_encoded_bytes().split(|&byte| byte == b'=').next();
        matches!(name, Some(b"--at" | b"--at-position"))
    };
    let verb = arguments.get(1).map(OsString::as_os_str);
    let mut options = arguments.iter().take_while(|&argument| argument != "--");
    if verb == Some(OsStr::new("restore")) && options.any(is_at) {
        return Err(unsupported("restore --at"));
    }
    Ok(())
}

fn unsupported(what: &str) -> Failure {
    Failure::unsupported(format!(
        "{what} reads a bucket over the network, which this program cannot; use the npm tool: npx @mangrove-kv/cli {what}"
    ))
}
