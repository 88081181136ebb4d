//! The clients of a session, of which one is selected: the session executes its requests.

use crate::client::Client;
use crate::pending::Kept;
use crate::state::State;
use crate::table::Table;

/// A client that is not selected.
pub(crate) struct Idle {
    pub(crate) client: Client,
    pub(crate) state: State,
    /// Version of the database when the client was last selected.
    pub(crate) version: u64,
}

#[derive(Default)]
pub(crate) struct Clients {
    pub(crate) idle: Table<Idle>,
    /// Number of the selected client.
    pub(crate) current: u64,
    pub(crate) last: u64,
    pub(crate) kept: Kept,
}
