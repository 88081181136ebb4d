//! The lazy part of the module: code that a page seldom needs, split off into a second module.
//!
//! For browsers the build divides the module in two. The first, the core, opens, reads, writes,
//! runs transactions and follows commits. The second has what only [`State::execute_lazy`] and
//! [`Session::refresh`] reach; it runs in the memory of the first. A request that needs it before
//! it is loaded is answered with [`again`](Writer::again), and the host learns that it is to load
//! it.
//!
//! [`State::execute_lazy`]: crate::state::State::execute_lazy
//! [`Session::refresh`]: crate::session::Session

use crate::protocol::Writer;

/// Whether the lazy part of the module is loaded.
#[derive(Default)]
pub(crate) enum LazyPart {
    /// It is, or the module was never split.
    #[default]
    Loaded,
    /// It is not; `is_wanted` if a request needed it since the last message.
    Lacking { is_wanted: bool },
    /// It could not be loaded. The next request that needs it reports that.
    Failed(String),
}

impl LazyPart {
    pub(crate) fn is_loaded(&self) -> bool {
        matches!(self, Self::Loaded)
    }

    /// Writes the reply of a request that cannot be executed yet.
    pub(crate) fn refuse(&mut self, out: &mut Writer) {
        let lacking = Self::Lacking { is_wanted: true };
        match std::mem::replace(self, lacking) {
            Self::Failed(source) => {
                *self = Self::Lacking { is_wanted: false };
                out.host_failure("loading the part of the engine that this call needs", &source);
            }
            _ => out.again(),
        }
    }

    /// Writes the reply of a write that needs it. Such requests are not sent again by themselves:
    /// those after them in the message have been executed.
    pub(crate) fn refuse_write(&mut self, out: &mut Writer) {
        *self = Self::Lacking { is_wanted: true };
        out.host_failure(
            "writing to a database with indexes",
            "the code for them is being loaded, try again",
        );
    }

    /// Whether the host is to load it; true once for each message that needed it.
    pub(crate) fn take_wanted(&mut self) -> bool {
        match self {
            Self::Lacking { is_wanted } => std::mem::take(is_wanted),
            _ => false,
        }
    }
}
