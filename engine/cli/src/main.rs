//! `mangrove`: the command line tool of Mangrove. `README.md` describes its input and output.

mod arguments;
mod codec;
mod collection;
mod failure;
mod files;
mod lock;
mod output;
mod progress;
mod range;
mod store;
mod verbs;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use failure::{EXIT_FAILURE, Failure};
use verbs::Verb;

/// Reading nested values recurses; this is enough for the deepest accepted ones.
const STACK_BYTES: usize = 256 << 20;

#[derive(Parser)]
#[command(
    name = "mangrove",
    version,
    about = "Reads and writes Mangrove databases",
    after_help = "\
PATH is a database's directory, or a single data file as a browser exports it.

Keys and values are JSON: mangrove set DIR '\"name\"' '{\"born\":1815}'. What JSON cannot say is an object with one property:
{\"$bytes\":\"base64\"}, {\"$date\":\"1815-12-10T00:00:00.000Z\"}, {\"$bigint\":\"123\"}, {\"$number\":\"NaN\"} and others. A property of your own
that begins with $ is written with $$.

Exit codes: 0 done, 1 wrong usage or any other failure, 2 damage was found."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// Reports a failure. A closed standard error is no reason to fail otherwise.
fn report(failure: &Failure) {
    let _ = writeln!(std::io::stderr(), "mangrove: {failure}");
}

fn run() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => {
            let _ = message.print();
            return if message.use_stderr() { EXIT_FAILURE } else { 0 };
        }
    };
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

fn main() -> ExitCode {
    match std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run) {
        Ok(thread) => thread.join().unwrap_or(EXIT_FAILURE).into(),
        Err(error) => {
            report(&Failure::io("starting", &error));
            EXIT_FAILURE.into()
        }
    }
}
