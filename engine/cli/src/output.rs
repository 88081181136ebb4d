//! Standard output: lines, buffered.

use std::io::{BufWriter, StdoutLock, Write};

use crate::failure::{Failure, Result};

pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub(crate) fn new() -> Self {
        Self(BufWriter::with_capacity(1 << 16, std::io::stdout().lock()))
    }

    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        let written = self.0.write_all(line.as_bytes()).and_then(|()| self.0.write_all(b"\n"));
        written.map_err(|error| Failure::output(&error))
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(|error| Failure::output(&error))
    }
}

/// Prints a single line.
pub(crate) fn print(line: &str) -> Result<()> {
    let mut output = Output::new();
    output.line(line)?;
    output.flush()
}
