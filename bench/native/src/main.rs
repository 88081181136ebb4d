//! Mangrove against its peers: every engine runs every workload in a separate process, the
//! engines taking turns over several rounds, and the report shows medians beside the best peer.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it reports to a person")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures are rounded anyway"
)]

mod engines;
mod measure;
mod records;
mod report;
mod workload;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::{Parser, ValueEnum};

use engines::NAMES;
use measure::Figure;
use report::Report;
use workload::{Kind, Workload};

#[derive(Parser)]
#[command(about = "Mangrove beside its peers")]
struct Arguments {
    /// Records of the workloads with small values.
    #[arg(long, default_value_t = 1_000_000)]
    records: usize,
    /// Records of the workload with numbers, or several numbers of them: 1000000,10000000.
    #[arg(long, value_delimiter = ',', default_value = "1000000")]
    ints: Vec<usize>,
    /// Records of the workload with values of 1 MiB.
    #[arg(long, default_value_t = 200)]
    large: usize,
    /// Records of the workload that has far more of them than a cache holds.
    #[arg(long, default_value_t = 10_000_000)]
    many: usize,
    /// How often every engine runs; the report shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// A tenth of the records, one round.
    #[arg(long)]
    quick: bool,
    /// Only these engines, separated by commas.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Only these workloads, separated by commas.
    #[arg(long, value_delimiter = ',', value_enum)]
    workloads: Vec<Kind>,
    /// Where the report goes. Default: target/bench/report.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Runs one engine and workload in this process and prints its figures as JSON.
    #[arg(long, hide = true)]
    child: Option<String>,
    #[arg(long, hide = true, default_value_t = 0)]
    seed: u64,
}

impl Arguments {
    fn records_of(&self, kind: Kind) -> Vec<usize> {
        let counts = match kind {
            Kind::Ints => self.ints.clone(),
            Kind::Large => vec![self.large],
            Kind::Many => vec![self.many],
            // 250 MiB of records at full size.
            Kind::BeyondCache => vec![self.records * 3 / 2],
            _ => vec![self.records],
        };
        let divisor = if self.quick { 10 } else { 1 };
        counts.into_iter().map(|count| (count / divisor).max(10)).collect()
    }

    fn selected(&self) -> Vec<Workload> {
        let kinds = if self.workloads.is_empty() {
            Kind::value_variants()
        } else {
            &self.workloads
        };
        let of = |&kind: &Kind| {
            self.records_of(kind)
                .into_iter()
                .map(move |records| Workload { kind, records })
        };
        kinds.iter().flat_map(of).collect()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(engine) = &arguments.child {
        let workload = Workload {
            kind: arguments.workloads[0],
            records: arguments.records,
        };
        let figures = workload.run(engine, arguments.seed);
        println!("{}", serde_json::to_string(&figures).expect("figures are plain data"));
        return ExitCode::SUCCESS;
    }
    let engines: Vec<&'static str> = NAMES
        .iter()
        .copied()
        .filter(|name| arguments.engines.is_empty() || arguments.engines.iter().any(|wanted| wanted == name))
        .collect();
    let output = arguments.output.clone();
    let output = output.unwrap_or_else(|| workload::scratch().join("report"));
    let rounds = if arguments.quick { 1 } else { arguments.rounds };
    let workloads = arguments.selected();
    let mut report = Report::new(&engines, &workloads);
    let mut failed = false;
    for round in 0..rounds {
        for (at, workload) in workloads.iter().enumerate() {
            for engine in &engines {
                eprintln!("round {} of {rounds}: {}: {engine}", round + 1, workload.title());
                match run_child(engine, *workload, round) {
                    Some(figures) => report.add(at, engine, figures),
                    None => failed = true,
                }
            }
        }
        // An interrupted run leaves the rounds that it finished.
        report.write(&output).expect("the output directory can be written");
    }
    println!("{}", report.markdown());
    eprintln!("written to {}", output.display());
    ExitCode::from(u8::from(failed))
}

/// Runs one engine in a child process. An engine that fails has no figures; the others still do.
fn run_child(engine: &str, workload: Workload, seed: u64) -> Option<Vec<Figure>> {
    let kind = workload.kind.to_possible_value().expect("none is hidden");
    let output = Command::new(std::env::current_exe().expect("the program has a path"))
        .args(["--child", engine, "--workloads", kind.get_name()])
        .args(["--records", &workload.records.to_string(), "--seed", &seed.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .expect("the program can start itself");
    if !output.status.success() {
        eprintln!("{engine} failed: {}", output.status);
        return None;
    }
    Some(serde_json::from_slice(&output.stdout).expect("the child prints figures"))
}
