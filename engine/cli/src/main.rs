//! `mangrove`: the command line tool of Mangrove. `README.md` describes its input and output.

mod arguments;
mod codec;
mod collection;
mod failure;
mod files;
mod key;
mod output;
mod progress;
mod range;
mod store;
mod system;
mod verbs;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

use failure::{EXIT_FAILURE, Failure};
use key::KeyArguments;
use progress::note;
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

Keys and values are JSON strings that stand for bytes, as --raw says: PROGRAM set DIR '\"name\"' '\"text\"'. Bytes that are no text are
{\"$bytes\":\"base64\"}. The npm tool, @mangrove-kv/cli, shows what programs in JavaScript store.

Exit codes: 0 done, 1 wrong usage or any other failure, 2 damage was found.";

/// Reads a command line, which begins with the program's name.
fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let name = arguments.first().and_then(|path| Path::new(path).file_stem()?.to_str());
    system::set_program(name.unwrap_or("mangrove").to_owned());
    let help = AFTER_HELP.replace("PROGRAM", system::program());
    let matches = Cli::command().after_help(help).try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches)
}

/// Reports a failure; returns its exit code.
fn report(failure: &Failure) -> u8 {
    if !matches!(failure, Failure::BrokenPipe) {
        note(&format!("mangrove: {failure}"));
    }
    failure.exit_code()
}

/// Runs a command line; returns the exit code.
fn run(arguments: Vec<OsString>) -> u8 {
    if let Err(failure) = verbs::refuse_restore(&arguments) {
        return report(&failure);
    }
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(message) => {
            let (mut stream, code): (Box<dyn Write>, _) = if message.use_stderr() {
                (Box::new(std::io::stderr()), EXIT_FAILURE)
            } else {
                (Box::new(std::io::stdout()), 0)
            };
            // A closed stream is no reason to fail otherwise.
            let _ = write!(stream, "{}", message.render()).and_then(|()| stream.flush());
            return code;
        }
    };
    cli.key.install();
    cli.verb.run().map_or_else(|failure| report(&failure), |()| 0)
}

fn main() -> ExitCode {
    run(std::env::args_os().collect()).into()
}
