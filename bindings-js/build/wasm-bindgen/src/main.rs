//! Stands in for the `wasm-bindgen` command in the build of the modules.
//!
//! The real command line takes minutes to build and brings a web server along; the build needs only the
//! few options below. An unknown option is an error, so that none is lost silently.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(answer) => {
            write_line(&mut std::io::stdout(), &answer);
            ExitCode::SUCCESS
        }
        Err(error) => {
            write_line(&mut std::io::stderr(), &format!("wasm-bindgen: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<String, Box<dyn Error>> {
    if arguments
        .iter()
        .any(|argument| argument == "--version" || argument == "-V")
    {
        return Ok(format!("wasm-bindgen {}", env!("CARGO_PKG_VERSION")));
    }
    let mut bindgen = Bindgen::new();
    // The command's default; the library's is the opposite.
    bindgen.omit_default_module_path(false);
    let mut out_dir = None;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--out-dir" => out_dir = Some(value()?.clone()),
            "--out-name" => drop(bindgen.out_name(value()?)),
            "--target" => set_target(&mut bindgen, value()?)?,
            "--typescript" => drop(bindgen.typescript(true)),
            "--no-typescript" => drop(bindgen.typescript(false)),
            "--debug" => drop(bindgen.debug(true)),
            "--no-demangle" => drop(bindgen.demangle(false)),
            "--keep-debug" => drop(bindgen.keep_debug(true)),
            "--omit-default-module-path" => drop(bindgen.omit_default_module_path(true)),
            "--split-linked-modules" => drop(bindgen.split_linked_modules(true)),
            option if option.starts_with('-') => return Err(format!("unknown option {option}").into()),
            input => drop(bindgen.input_path(input)),
        }
    }
    let out_dir = out_dir.ok_or("--out-dir is missing")?;
    bindgen.generate(&out_dir).map_err(|error| format!("{error:?}"))?;
    Ok(format!("bindings written to {out_dir}"))
}

fn set_target(bindgen: &mut Bindgen, target: &str) -> Result<(), Box<dyn Error>> {
    match target {
        "bundler" => bindgen.bundler(true)?,
        "web" => bindgen.web(true)?,
        "nodejs" => bindgen.nodejs(true)?,
        "no-modules" => bindgen.no_modules(true)?,
        "deno" => bindgen.deno(true)?,
        other => return Err(format!("unknown target {other}").into()),
    };
    Ok(())
}

/// Writes a line; a closed pipe is no reason to panic.
fn write_line(output: &mut dyn std::io::Write, line: &str) {
    let _ = writeln!(output, "{line}");
}
