//! Standard output, buffered, line by line.

use std::io::{StdoutLock, Write, stdout};

use crate::failure::{Failure, Result};

const BUFFER_BYTES: usize = 1 << 16;

pub(crate) struct Output {
    out: StdoutLock<'static>,
    buffer: Vec<u8>,
    /// Whether a reader may have seen something.
    has_begun: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            out: stdout().lock(),
            buffer: Vec::with_capacity(BUFFER_BYTES),
            has_begun: false,
        }
    }

    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        if self.buffer.len() < BUFFER_BYTES {
            return Ok(());
        }
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        self.has_begun = true;
        let written = self.out.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|error| Failure::output(&error))
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.write()?;
        self.out.flush().map_err(|error| Failure::output(&error))
    }

    /// Ends the output of work that ended with `result`. Prints what came before a failure too,
    /// unless all of it can be read again.
    pub(crate) fn end(mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(Failure::Stale) if !self.has_begun => Err(Failure::Stale),
            Err(Failure::Stale) => self.flush().and(Err(Failure::stale_output())),
            Err(failure) => {
                // The first failure is the one that counts.
                let _ = self.flush();
                Err(failure)
            }
            Ok(()) => self.flush(),
        }
    }
}

/// Prints a single line.
pub(crate) fn print(line: &str) -> Result<()> {
    let mut output = Output::new();
    output.line(line)?;
    output.flush()
}
