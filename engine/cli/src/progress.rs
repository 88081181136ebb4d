//! Progress on standard error.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use mangrove_engine::BackupProgress;

/// Time between two reports.
const PAUSE: Duration = Duration::from_millis(100);

/// Shows progress. A terminal gets a line that changes; anything else gets one line per report, if
/// requested.
pub(crate) struct Progress {
    is_wanted: bool,
    is_terminal: bool,
    last: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(is_asked_for: bool) -> Self {
        let is_terminal = stderr().is_terminal();
        Self {
            is_wanted: is_asked_for || is_terminal,
            is_terminal,
            last: None,
        }
    }

    /// Shows the progress of a backup or restore, which counts `things`.
    pub(crate) fn show_copied(&mut self, state: BackupProgress, things: &str) {
        self.show(state.records == state.total_records, || {
            let percent = (state.records * 100).checked_div(state.total_records).unwrap_or(100);
            format!(
                "{percent} %, {} of {} {things}, {} bytes",
                state.records, state.total_records, state.bytes
            )
        });
    }

    /// Shows a line, unless the previous one is recent and this is not the last.
    pub(crate) fn show(&mut self, is_last: bool, line: impl FnOnce() -> String) {
        let now = Instant::now();
        if !self.is_wanted || (!is_last && self.last.is_some_and(|last| now - last < PAUSE)) {
            return;
        }
        self.last = Some(now);
        let line = line();
        if self.is_terminal {
            // The previous line may have been longer.
            let _ = write!(stderr(), "\r{line}\x1B[K");
        } else {
            note(&line);
        }
    }

    /// Ends the line that changes.
    pub(crate) fn end(&mut self) {
        if self.is_terminal && self.last.take().is_some() {
            note("");
        }
    }
}

/// Prints a line on standard error; a closed one is no reason to fail.
pub(crate) fn note(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

impl Drop for Progress {
    /// Ends the line, so that an error starts on a new one.
    fn drop(&mut self) {
        self.end();
    }
}
