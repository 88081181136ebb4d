//! Mangrove beside redb and LMDB: every engine runs every workload in a process of its own, the engines in turn and several
//! times over, and the table shows medians with the best of each row.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it reports to a person")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures are rounded anyway"
)]

mod engines;
mod workload;

use std::process::{Command, Stdio};

use clap::Parser;

use engines::NAMES;
use workload::{Figure, Unit};

#[derive(Parser)]
#[command(about = "Mangrove beside redb and LMDB")]
struct Arguments {
    /// Records of the bulk insert: 24-byte keys, 150-byte values.
    #[arg(long, default_value_t = 1_000_000)]
    records: usize,
    /// How often every engine runs; the table shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// A tenth of the records, one round.
    #[arg(long)]
    quick: bool,
    /// Runs one engine in this process and prints its figures as JSON.
    #[arg(long, hide = true)]
    engine: Option<String>,
    #[arg(long, hide = true, default_value_t = 0)]
    seed: u64,
}

fn main() {
    let mut arguments = Arguments::parse();
    if let Some(engine) = &arguments.engine {
        let figures = workload::run(engine, arguments.records, arguments.seed);
        println!("{}", serde_json::to_string(&figures).expect("figures are plain data"));
        return;
    }
    if arguments.quick {
        arguments.records /= 10;
        arguments.rounds = 1;
    }
    let mut runs: Vec<Vec<Vec<Figure>>> = vec![Vec::new(); NAMES.len()];
    for round in 0..arguments.rounds {
        for (engine, runs) in NAMES.iter().zip(&mut runs) {
            eprintln!("round {} of {}: {engine}", round + 1, arguments.rounds);
            runs.push(run_child(engine, arguments.records, round));
        }
    }
    print_table(&runs, &arguments);
}

fn run_child(engine: &str, records: usize, seed: u64) -> Vec<Figure> {
    let output = Command::new(std::env::current_exe().expect("the program has a path"))
        .args([
            "--engine",
            engine,
            "--records",
            &records.to_string(),
            "--seed",
            &seed.to_string(),
        ])
        .stderr(Stdio::inherit())
        .output()
        .expect("the program can start itself");
    assert!(output.status.success(), "{engine} failed");
    serde_json::from_slice(&output.stdout).expect("the child prints figures")
}

fn median(runs: &[Vec<Figure>], name: &str) -> Option<(f64, Unit)> {
    let figures = runs
        .iter()
        .flat_map(|run| run.iter().filter(|figure| figure.name == name));
    let mut found: Vec<(f64, Unit)> = figures.map(|figure| (figure.value, figure.unit)).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.get(found.len() / 2).copied()
}

fn print_table(runs: &[Vec<Vec<Figure>>], arguments: &Arguments) {
    println!(
        "{} records of 24 + 150 bytes, {} MiB of cache, medians of {} rounds; in brackets the ratio to the best of the row\n",
        arguments.records,
        engines::CACHE_BYTES >> 20,
        arguments.rounds
    );
    println!("| | {} |", NAMES.join(" | "));
    println!("|---|{}", "--:|".repeat(NAMES.len()));
    for figure in &runs[0][0] {
        let medians: Vec<Option<(f64, Unit)>> = runs.iter().map(|runs| median(runs, &figure.name)).collect();
        let values = medians.iter().flatten().map(|(value, _)| *value);
        let best = match figure.unit {
            Unit::PerSecond => values.fold(0.0, f64::max),
            Unit::Mebibytes | Unit::Bytes => values.fold(f64::INFINITY, f64::min),
        };
        let cells: Vec<String> = medians.iter().map(|median| cell(*median, best)).collect();
        println!("| {} | {} |", figure.name, cells.join(" | "));
    }
}

fn cell(median: Option<(f64, Unit)>, best: f64) -> String {
    let Some((value, unit)) = median else {
        return "–".to_owned();
    };
    match unit {
        Unit::PerSecond => format!("{} /s ({:.2})", thousands(value), value / best),
        Unit::Mebibytes => format!("{value:.0} MiB ({:.2})", value / best),
        Unit::Bytes => format!("{} ({:.2})", thousands(value), value / best),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}
