use std::fmt::{self, Write as _};

use super::{Report, Row, short, thousands, versions};
use crate::measure::{Unit, Written};

pub(super) fn markdown(report: &Report) -> String {
    let mut text = String::new();
    write(report, &mut text).expect("strings take everything");
    text
}

fn write(report: &Report, to: &mut String) -> fmt::Result {
    writeln!(
        to,
        "{} MiB of cache, {}; in brackets the ratio to the best peer, in bold what is best of all. Peers: {}.",
        report.cache_bytes >> 20,
        match report.rounds() {
            1 => "one round".to_owned(),
            rounds => format!("medians of {rounds} rounds"),
        },
        versions()
    )?;
    for (title, rows) in report.rows() {
        writeln!(to, "\n### {title}\n")?;
        header(report, to)?;
        for row in &rows {
            let cells = cells(report, row).join(" | ");
            writeln!(to, "| {} | {cells} |", row.name)?;
        }
    }
    write_written(report, to)
}

fn header(report: &Report, to: &mut String) -> fmt::Result {
    writeln!(to, "| | {} |", report.engines.join(" | "))?;
    writeln!(to, "|---|{}", "--:|".repeat(report.engines.len()))
}

fn cells(report: &Report, row: &Row) -> Vec<String> {
    let peers = row.values.iter().enumerate().filter(|(at, _)| report.is_peer(*at));
    // There are no multiples of zero, or of memory that was not even taken.
    let best_peer = row
        .unit
        .best(peers.filter_map(|(_, value)| *value))
        .filter(|best| *best > 0.0);
    let best = row.unit.best(row.values.iter().flatten().copied());
    let cell = |value: &Option<f64>| {
        let Some(value) = *value else { return "–".to_owned() };
        let shown = match row.unit {
            Unit::PerSecond => format!("{} /s", short(value)),
            Unit::Mebibytes => format!("{} MiB", short(value)),
            Unit::Milliseconds => format!("{} ms", short(value)),
            Unit::Times => short(value),
        };
        let ratio = best_peer.map_or(String::new(), |best| format!(" ({:.2})", value / best));
        if best == Some(value) {
            format!("**{shown}**{ratio}")
        } else {
            shown + &ratio
        }
    };
    row.values.iter().map(cell).collect()
}

fn write_written(report: &Report, to: &mut String) -> fmt::Result {
    writeln!(
        to,
        "\n### Written per operation\n\nBytes, calls that write, and flushes, of an operation: a record, or a commit of 1. Mangrove's are counted at its storage, the peers' by the system for the whole process, which does not count \
        flushes; what a peer puts off to a background thread counts for the workload in which it gets done.\n"
    )?;
    header(report, to)?;
    for (title, rows) in report.rows() {
        let mut heading = Some(title);
        for row in rows.iter().filter(|row| writes(row)) {
            if let Some(title) = heading.take() {
                writeln!(to, "| *{title}* |{}", " |".repeat(report.engines.len()))?;
            }
            let cells: Vec<String> = row
                .written
                .iter()
                .map(|written| written_cell(written.as_ref()))
                .collect();
            writeln!(to, "| {} | {} |", row.name, cells.join(" | "))?;
        }
    }
    Ok(())
}

/// Whether a row reports writes. Reads do not, though a background thread may write during them.
fn writes(row: &Row) -> bool {
    ["inserts", "commits", "overwrites", "removals", "sets", "purge"]
        .iter()
        .any(|verb| row.name.contains(verb) && row.unit == Unit::PerSecond)
}

fn written_cell(written: Option<&Written>) -> String {
    let Some(written) = written else {
        return "–".to_owned();
    };
    let writes = format!("{} B, {} writes", thousands(written.bytes), tiny(written.writes));
    match written.flushes {
        Some(flushes) => format!("{writes}, {} flushes", tiny(flushes)),
        None => writes,
    }
}

fn tiny(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 0.01 {
        format!("{value:.1e}")
    } else {
        short(value)
    }
}
