//! `recover`: writes what can still be read of a damaged database into a new one.

use std::ops::ControlFlow;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use mangrove_engine::{Completeness, Error, LogState, RecoverPhase, RecoverProgress, RecoverReport, RecoveredRoot};
use serde_json::{Value, json};

use super::verify::describe;
use crate::failure::{Failure, Result};
use crate::key;
use crate::output::print;
use crate::progress::note;
use crate::store::{self, Vacancy};

#[derive(Args)]
#[command(after_help = "\
The source is only read. Keys in the report are in base64; a collection of null means the list of collections itself.

Exit codes: 0 the new database has exactly the newest state, 1 it could not be created, 2 something was lost, or may have been.")]
pub(crate) struct Arguments {
    /// Directory or data file of the damaged database.
    source: PathBuf,
    /// Directory of the new database, which must not exist there yet.
    target: PathBuf,
}

/// Reports progress on standard error. It reports each new phase, each tenth of the scan, and each
/// million records after it.
#[derive(Default)]
struct Progress {
    shown: Option<(RecoverPhase, u64)>,
}

impl Progress {
    fn show(&mut self, progress: RecoverProgress) {
        let tenth = (progress.scanned_bytes.saturating_mul(10))
            .checked_div(progress.total_bytes)
            .unwrap_or(0);
        let now = match progress.phase {
            RecoverPhase::Scanning => (progress.phase, tenth),
            phase => (phase, progress.records / 1_000_000),
        };
        if self.shown == Some(now) {
            return;
        }
        self.shown = Some(now);
        let line = match progress.phase {
            RecoverPhase::Scanning => format!("scanning, {} of {} bytes", progress.scanned_bytes, progress.total_bytes),
            RecoverPhase::Copying => format!("copying, {} records", progress.records),
            _ => "verifying the new database".to_owned(),
        };
        note(&line);
    }
}

fn key(bytes: &[u8]) -> Value {
    STANDARD.encode(bytes).into()
}

fn shown(report: &RecoverReport) -> Value {
    let collections = report
        .collections
        .iter()
        .map(|found| json!({ "name": found.name, "id": found.id, "named": found.is_named, "count": found.count }));
    let ranges = report.damaged_ranges.iter().map(|range| {
        json!({
            "collection": range.collection,
            "lower": key(&range.lower),
            "upper": range.upper.as_deref().map(key),
            "expected": range.expected,
            "recovered": range.recovered,
        })
    });
    let lost = report.lost_records.iter();
    let lost = lost.map(|record| json!({ "collection": record.collection, "key": key(&record.key) }));
    let root = match report.root {
        RecoveredRoot::Superblock { generation, version } => {
            json!({ "kind": "superblock", "generation": generation, "version": version })
        }
        RecoveredRoot::Catalog { generation } => json!({ "kind": "catalog", "generation": generation }),
        RecoveredRoot::None => json!({ "kind": "none" }),
    };
    let state = match report.log.state {
        LogState::Absent => "absent",
        LogState::Missing => "missing",
        LogState::Intact => "intact",
        LogState::Damaged => "damaged",
    };
    json!({
        "completeness": completeness(report.completeness),
        "root": root,
        "log": {
            "state": state,
            "appliedRecords": report.log.applied_records,
            "lostCommits": report.log.lost_commits,
        },
        "entries": report.records(),
        "collections": collections.collect::<Vec<Value>>(),
        "damagedRanges": ranges.collect::<Vec<Value>>(),
        "damagedRangeCount": report.damaged_range_count,
        "lostRecords": lost.collect::<Vec<Value>>(),
        "lostRecordCount": report.lost_record_count,
        "unreadablePages": report.unreadable_blocks,
        "problems": report.problems.iter().map(describe).collect::<Vec<Value>>(),
    })
}

fn completeness(completeness: Completeness) -> &'static str {
    match completeness {
        Completeness::Exact => "exact",
        Completeness::Reconstructed => "reconstructed",
        Completeness::Salvage => "salvage",
        Completeness::Cancelled => "cancelled",
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (source, _source_lock) = store::locked(&arguments.source)?;
    if arguments.target.is_file() {
        let what = arguments.target.display().to_string();
        return Err(Error::AlreadyExists { what: what.into() }.into());
    }
    let mut progress = Progress::default();
    let report = Vacancy::new(&arguments.target)?.fill(|target| {
        let report = mangrove_engine::recover(source, target, key::options()?, &mut |now| {
            progress.show(now);
            ControlFlow::Continue(())
        });
        Ok(report?)
    })?;
    print(&shown(&report).to_string())?;
    match report.completeness {
        Completeness::Exact => Ok(()),
        _ => Err(Failure::incomplete(completeness(report.completeness))),
    }
}
