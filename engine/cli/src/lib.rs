//! The command line tool of Mangrove: the `mangrove` program, and as WebAssembly that of the npm
//! package. `README.md` describes its input and output.

mod arguments;
mod codec;
mod collection;
mod failure;
mod files;
mod key;
#[cfg(not(target_family = "wasm"))]
pub mod native;
mod output;
mod progress;
mod range;
mod store;
pub mod system;
mod verbs;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches, Parser};

use failure::{EXIT_FAILURE, Failure};
use key::KeyArguments;
use progress::note;
use system::System;
use verbs::Verb;

#[derive(Parser)]
#[command(name = "mangrove", version, about = "Reads and writes Mangrove databases")]
struct Cli {
    #[command(flatten)]
    key: KeyArguments,
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = "\
PATH is a database's directory, or a single data file as a browser exports it.

Keys and values are JSON: PROGRAM set DIR '\"name\"' '{\"born\":1815}'. What JSON cannot say is an object with one property:
{\"$bytes\":\"base64\"}, {\"$date\":\"1815-12-10T00:00:00.000Z\"}, {\"$bigint\":\"123\"}, {\"$number\":\"NaN\"} and others. A property of your own
that begins with $ is written with $$.

Exit codes: 0 done, 1 wrong usage or any other failure, 2 damage was found.";

/// Reads a command line, which begins with the program's name.
fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let name = arguments.first().and_then(|path| Path::new(path).file_stem()?.to_str());
    system::set_program(name.unwrap_or("mangrove").to_owned());
    let help = AFTER_HELP.replace("PROGRAM", system::program());
    let matches = Cli::command().after_help(help).try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches)
}

/// Reports a failure.
fn report(failure: &Failure) {
    note(&format!("mangrove: {failure}"));
}

/// Reports that the program could not be started; returns its exit code.
pub fn fail_to_start(system: &'static dyn System, error: &std::io::Error) -> u8 {
    system::install(system);
    report(&Failure::io("starting", error));
    EXIT_FAILURE
}

/// Runs a command line, which begins with the program's name; returns the exit code.
pub fn run(system: &'static dyn System, arguments: impl IntoIterator<Item = OsString>) -> u8 {
    system::install(system);
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Err(failure) = verbs::refuse_restore(&arguments) {
        report(&failure);
        return failure.exit_code();
    }
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(message) => {
            let (mut stream, code) = if message.use_stderr() {
                (system.error_output(), EXIT_FAILURE)
            } else {
                (system.output(), 0)
            };
            // A closed stream is no reason to fail otherwise.
            let _ = write!(stream, "{}", message.render()).and_then(|()| stream.flush());
            return code;
        }
    };
    cli.key.install();
    match cli.verb.run() {
        Ok(()) => 0,
        Err(failure) => {
            if !matches!(failure, Failure::BrokenPipe) {
                report(&failure);
            }
            failure.exit_code()
        }
    }
}
