//! What other collections cost a commit, and what it takes to create many.
//!
//! One database in memory per number of collections, each with one record in every collection. The
//! databases take turns; the table shows medians over the rounds.
#![allow(clippy::print_stdout, reason = "it reports to a person")]
#![allow(clippy::cast_precision_loss, reason = "figures are rounded anyway")]

use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{Database, Durability, Options, Result};

#[derive(Parser)]
#[command(about = "Commits beside many collections")]
struct Arguments {
    /// Numbers of collections.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 1000, 10_000])]
    collections: Vec<usize>,
    /// Rounds of commits per database.
    #[arg(long, default_value_t = 41)]
    rounds: usize,
    /// Commits per round.
    #[arg(long, default_value_t = 500)]
    commits: usize,
}

/// Which collection a commit goes to.
#[derive(Clone, Copy)]
enum Target {
    Default,
    Random,
}

struct Subject {
    count: usize,
    created_micros: f64,
    database: Database,
}

fn name(number: usize) -> String {
    match number {
        0 => String::new(),
        number => format!("tenant {number}"),
    }
}

fn micros(started: Instant, operations: usize) -> f64 {
    started.elapsed().as_secs_f64() * 1e6 / operations as f64
}

impl Subject {
    /// Creates each collection in a commit of its own.
    fn create(count: usize) -> Result<Self> {
        let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
        let started = Instant::now();
        for number in 0..count {
            let mut transaction = database.begin()?;
            transaction.set(&name(number), b"key", b"value")?;
            transaction.commit(Durability::Strict)?;
        }
        Ok(Self {
            count,
            created_micros: micros(started, count),
            database,
        })
    }

    fn commit(&self, commits: usize, target: Target) -> Result<f64> {
        let names: Vec<String> = (0..commits)
            .map(|_| match target {
                Target::Default => String::new(),
                Target::Random => name(fastrand::usize(..self.count)),
            })
            .collect();
        let started = Instant::now();
        for (number, name) in names.iter().enumerate() {
            let mut transaction = self.database.begin()?;
            transaction.set(name, b"key", &number.to_be_bytes())?;
            transaction.commit(Durability::Strict)?;
        }
        Ok(micros(started, commits))
    }
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let counts = arguments.collections.iter();
    let subjects = counts
        .map(|count| Subject::create((*count).max(1)))
        .collect::<Result<Vec<_>>>()?;
    let mut figures = vec![[const { Vec::new() }; 2]; subjects.len()];
    for _ in 0..arguments.rounds {
        for (subject, figures) in subjects.iter().zip(&mut figures) {
            for (target, figures) in [Target::Default, Target::Random].into_iter().zip(figures) {
                figures.push(subject.commit(arguments.commits, target)?);
            }
        }
    }
    println!("| Collections | Creating one, µs | Commit to the default one, µs | to a random one, µs |");
    println!("|--:|--:|--:|--:|");
    let mut first = None;
    for (subject, [default, random]) in subjects.iter().zip(&mut figures) {
        let (default, random) = (median(default), median(random));
        let (first_default, first_random) = *first.get_or_insert((default, random));
        println!(
            "| {} | {:.2} | {default:.2} ({:.2}) | {random:.2} ({:.2}) |",
            subject.count,
            subject.created_micros,
            default / first_default,
            random / first_random,
        );
    }
    Ok(())
}
