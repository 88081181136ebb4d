//! The report: tables, a plot and the raw figures.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use serde::Serialize;

use crate::engines::NAMES;
use crate::measure::{Figure, Unit, Written};
use crate::workload::{CACHE_BYTES, Workload};

mod plot;
mod tables;

/// The figures of all rounds.
#[derive(Serialize)]
pub(crate) struct Report {
    cache_bytes: usize,
    engines: Vec<&'static str>,
    sections: Vec<Section>,
}

/// One workload.
#[derive(Serialize)]
struct Section {
    title: String,
    /// By engine, in the order of the names, and by round.
    runs: Vec<Vec<Vec<Figure>>>,
}

/// The medians of one figure, by engine.
struct Row {
    name: String,
    unit: Unit,
    values: Vec<Option<f64>>,
    written: Vec<Option<Written>>,
}

impl Report {
    pub(crate) fn new(engines: &[&'static str], workloads: &[Workload]) -> Self {
        let section = |workload: &Workload| Section {
            title: workload.title(),
            runs: vec![Vec::new(); engines.len()],
        };
        Self {
            cache_bytes: CACHE_BYTES,
            engines: engines.to_vec(),
            sections: workloads.iter().map(section).collect(),
        }
    }

    pub(crate) fn add(&mut self, workload: usize, engine: &str, figures: Vec<Figure>) {
        let at = self.engines.iter().position(|name| *name == engine);
        self.sections[workload].runs[at.expect("it is one of these engines")].push(figures);
    }

    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::write(directory.join("report.md"), self.markdown())?;
        fs::write(directory.join("report.svg"), plot::svg(self))?;
        fs::write(directory.join("results.json"), serde_json::to_vec_pretty(self)?)
    }

    pub(crate) fn markdown(&self) -> String {
        tables::markdown(self)
    }

    fn rounds(&self) -> usize {
        let runs = self.sections.iter().flat_map(|section| &section.runs);
        runs.map(Vec::len).max().unwrap_or(0)
    }

    fn is_peer(&self, engine: usize) -> bool {
        !self.engines[engine].starts_with("mangrove")
    }

    /// Returns the rows of each section; omits sections that no engine can run.
    fn rows(&self) -> impl Iterator<Item = (&str, Vec<Row>)> {
        let all = self
            .sections
            .iter()
            .map(|section| (section.title.as_str(), section.rows()));
        all.filter(|(_, rows)| !rows.is_empty())
    }
}

impl Section {
    fn rows(&self) -> Vec<Row> {
        // Not every engine has every figure: one that others lack comes after the figure before it.
        let mut names: Vec<(&str, Unit)> = Vec::new();
        for run in self.runs.iter().filter_map(|rounds| rounds.first()) {
            let mut next = 0;
            for figure in run {
                let known = names.iter().position(|(name, _)| *name == figure.name);
                if known.is_none() {
                    names.insert(next, (&figure.name, figure.unit));
                }
                next = known.unwrap_or(next) + 1;
            }
        }
        names.into_iter().map(|(name, unit)| self.row(name, unit)).collect()
    }

    fn row(&self, name: &str, unit: Unit) -> Row {
        let medians = |runs: &Vec<Vec<Figure>>| {
            let found = || runs.iter().flatten().filter(|figure| figure.name == name);
            let written = || found().filter_map(|figure| figure.written);
            let value = median(found().map(|figure| figure.value));
            let bytes = median(written().map(|written| written.bytes));
            let written = bytes.map(|bytes| Written {
                bytes,
                writes: median(written().map(|written| written.writes)).unwrap_or(0.0),
                flushes: median(written().filter_map(|written| written.flushes)),
            });
            (value, written)
        };
        let (values, written) = self.runs.iter().map(medians).unzip();
        Row {
            name: name.to_owned(),
            unit,
            values,
            written,
        }
    }
}

impl Unit {
    fn best(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        values.reduce(match self {
            Self::PerSecond => f64::max,
            Self::Mebibytes | Self::Milliseconds | Self::Times => f64::min,
        })
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, *upper))
}

/// Returns the versions of the built-in engines.
fn versions() -> String {
    let lock = include_str!("../../../../Cargo.lock");
    let of = |package: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
        rest.split('"').next()
    };
    let mut text = String::new();
    for &name in NAMES {
        let package = match name {
            "lmdb" => "heed",
            "sqlite" => "rusqlite",
            _ => name,
        };
        if let Some(version) = of(package) {
            let through = if package == name {
                String::new()
            } else {
                format!(" through {package}")
            };
            let separator = if text.is_empty() { "" } else { ", " };
            write!(text, "{separator}{name}{through} {version}").expect("strings take everything");
        }
    }
    text
}

pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

/// Formats a value with as many digits as are useful.
fn short(value: f64) -> String {
    if value < 0.0 {
        format!("-{}", short(-value))
    } else if value >= 100.0 {
        thousands(value)
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}
