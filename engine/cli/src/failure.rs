//! Failures, each with a stable code that is the same in every language, and an exit code.

use std::fmt;
use std::io;

use mangrove_engine::Error;

use crate::system::program;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Exit code for wrong usage and for all failures except damage.
pub(crate) const EXIT_FAILURE: u8 = 1;
/// Exit code for damage.
pub(crate) const EXIT_DAMAGE: u8 = 2;

pub(crate) const CORRUPT: &str = "KV_CORRUPT";
const STALE: &str = "KV_STALE";

#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader of the output has gone. This is no error: `mangrove scan … | head` ends like
    /// that.
    BrokenPipe,
    /// A writer in another process overwrote what was being read. Nothing was printed yet, so
    /// reading can start again.
    Stale,
    Coded {
        code: &'static str,
        message: String,
    },
}

impl Failure {
    fn coded(code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Coded { code, message }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::coded("KV_INVALID_ARGUMENT", message)
    }

    pub(crate) fn key(message: impl Into<String>) -> Self {
        Self::coded("KV_INVALID_KEY", message)
    }

    pub(crate) fn value(message: impl Into<String>) -> Self {
        Self::coded("KV_INVALID_VALUE", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::coded("KV_NOT_FOUND", message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::coded("KV_UNSUPPORTED", message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::coded(CORRUPT, message)
    }

    /// Reports [`Stale`](Self::Stale) when something was already printed.
    pub(crate) fn stale_output() -> Self {
        Self::coded(
            STALE,
            "a writer overwrote what was being read, so the output is incomplete; run it again, or when the writer has closed the database",
        )
    }

    pub(crate) fn io(action: &str, error: &io::Error) -> Self {
        Self::coded("KV_IO", format!("{action}: {error}"))
    }

    /// Reports damage that a verification found.
    pub(crate) fn damage(count: usize, first: &str) -> Self {
        Self::coded(CORRUPT, format!("{count} problems found, the first: {first}"))
    }

    /// Reports a recovery that may not have brought back everything.
    pub(crate) fn incomplete(completeness: &str) -> Self {
        let message =
            format!("something was lost, or may have been (completeness: {completeness}); standard output says what");
        Self::coded(CORRUPT, message)
    }

    /// Reports damage that prevents opening a database.
    pub(crate) fn unreadable(error: &Error) -> Self {
        let message = format!("{error}; \"{} recover\" saves what can still be read", program());
        Self::coded(error.code(), message)
    }

    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Coded { code: CORRUPT, .. })
    }

    /// Reports that the engine returned something other than it was given.
    pub(crate) fn self_test(message: impl Into<String>) -> Self {
        Self::coded(CORRUPT, message)
    }

    /// Reports a failure to write to standard output.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::io("writing to standard output", error),
        }
    }

    /// Adds the part of the input that the failure was in.
    pub(crate) fn within(self, place: &str) -> Self {
        match self {
            Self::BrokenPipe | Self::Stale => self,
            Self::Coded { code, message } => Self::coded(code, format!("{place}: {message}")),
        }
    }

    /// Adds advice to a failure with the code `of`.
    pub(crate) fn with_advice(self, of: &str, advice: &str) -> Self {
        match self {
            Self::Coded { code, message } if code == of => Self::coded(code, format!("{message}; {advice}")),
            failure => failure,
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Coded { .. } if self.is_damage() => EXIT_DAMAGE,
            Self::Stale | Self::Coded { .. } => EXIT_FAILURE,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Stale => Self::Stale,
            error => Self::coded(error.code(), error.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BrokenPipe => f.write_str("the output was closed"),
            Self::Stale => write!(
                f,
                "{STALE}: a writer overwrites the database faster than it can be read; run it again, or when the writer has closed it"
            ),
            Self::Coded { code, message } => write!(f, "{code}: {message}"),
        }
    }
}
