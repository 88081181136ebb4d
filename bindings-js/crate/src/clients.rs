//! Several clients of one session, of which one is at hand: its requests are those that are executed.

use mangrove_engine::{Database, Error, Result, Snapshot};

use crate::client::Client;
use crate::protocol::Reader;
use crate::session::Session;
use crate::state::State;
use crate::table::Table;

/// A client that is not at hand.
struct Aside {
    client: Client,
    state: State,
    /// Version of the database when it was last at hand.
    version: u64,
}

#[derive(Default)]
pub(crate) struct Clients {
    aside: Table<Aside>,
    /// Number of the one at hand.
    current: u64,
    last: u64,
    pub(crate) kept: Kept,
}

/// What is kept for clients that are not there.
#[derive(Default)]
pub(crate) struct Kept {
    /// The state in which the database was opened, as long as clients may go on from it.
    pub(crate) inherited: Option<Snapshot>,
    /// Clients that will not ask again, until the next commit.
    pub(crate) to_forget: Vec<Vec<u8>>,
}

impl Session {
    /// Clients may go on from the state in which the database is now, until [`end_inheritance`](Self::end_inheritance).
    pub fn begin_inheritance(&mut self) {
        self.clients.kept.inherited = self.database.as_ref().map(Database::snapshot);
    }

    /// Begins to serve a client, which is at hand then; gives its number. `state` is what [`take_state`](Self::take_state) gave where it was
    /// served before.
    ///
    /// # Errors
    /// Storage errors and corruption, and [`Error::InvalidArgument`] for a state that cannot be understood.
    pub fn attach(&mut self, name: &str, read_only: bool, state: Option<&[u8]>) -> Result<u64> {
        let database = self.database.as_ref().ok_or(Error::Closed)?;
        let inherited = self.clients.kept.inherited.as_ref();
        let client = Client::load(name, read_only, &database.snapshot())?;
        let state = match state {
            Some(state) => State::import(database, inherited, &mut Reader::new(state))?,
            None => State::portable(),
        };
        let version = database.version();
        // The client may have been thought to be gone.
        self.clients.kept.to_forget.retain(|gone| gone != name.as_bytes());
        self.clients.last += 1;
        let id = self.clients.last;
        self.clients.aside.insert(id, Aside { client, state, version });
        self.select(id);
        Ok(id)
    }

    /// Makes a client the one at hand; without one of this number nothing that is executed succeeds.
    pub fn select(&mut self, id: u64) {
        if id == self.clients.current {
            return;
        }
        let version = self.database.as_ref().map_or(0, Database::version);
        let found = self.clients.aside.take(id).unwrap_or_else(|| Aside {
            client: Client::closed(),
            state: State::default(),
            version,
        });
        // Else each commit would have to keep what it replaces.
        self.state.forget_current();
        let before = Aside {
            client: std::mem::replace(&mut self.client, found.client),
            state: std::mem::replace(&mut self.state, found.state),
            version,
        };
        if found.version != version {
            // Others may have made and dropped collections.
            self.state.undo();
        }
        self.clients.aside.insert(self.clients.current, before);
        self.clients.current = id;
    }

    /// The next message of the client at hand is of this number. The same number says that it is the same message.
    pub fn begin_message(&mut self, seq: u64) {
        self.client.begin(seq);
    }

    /// Stops serving a client; what it has open is closed.
    pub fn detach(&mut self, id: u64) {
        if id == self.clients.current {
            self.select(0);
        }
        self.clients.aside.remove(id);
    }

    /// With the next commit what is remembered for this client is removed.
    pub fn forget(&mut self, name: &str) {
        self.clients.kept.to_forget.push(name.as_bytes().to_vec());
    }

    /// Names of the clients that something is remembered for.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn remembered(&self) -> Result<Vec<Vec<u8>>> {
        self.database
            .as_ref()
            .map_or(Err(Error::Closed), |database| database.snapshot().clients())
    }

    /// What the client at hand has open, for [`attach`](Self::attach) elsewhere, if that changed since it was last asked for. With `last`
    /// in any case, and nothing more is committed here: those who follow the commits get what there is for them along with it.
    pub fn take_state(&mut self, last: bool) -> Option<Vec<u8>> {
        let database = self.database.as_ref()?;
        self.state.export(database, last)
    }

    /// Number of a client for which there are commits that it was not told of; each is given once.
    pub fn next_news(&mut self) -> Option<u64> {
        let database = self.database.as_ref()?;
        if self.state.has_news(database) {
            return Some(self.clients.current);
        }
        self.clients
            .aside
            .iter_mut()
            .find_map(|(id, aside)| aside.state.has_news(database).then_some(id))
    }

    /// From now on what clients had open where they were served before is lost to them.
    pub fn end_inheritance(&mut self) {
        self.clients.kept.inherited = None;
    }

    /// Version of the last commit.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.database.as_ref().map_or(0, Database::version)
    }
}
