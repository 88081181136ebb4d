//! Selecting, attaching and detaching clients of a session.

use mangrove_engine::{Database, Error, Result};

use crate::client::Client;
use crate::idle_clients::Idle;
use crate::protocol::{Reader, Writer};
use crate::request::Request;
use crate::schema::Gate;
use crate::session::Session;
use crate::state::State;

impl Session {
    /// Lets clients resume from the current state of the database until
    /// [`end_inheritance`](Self::end_inheritance), or until the space that it holds is needed. `opening`
    /// is random: it tells this opening of the database from others.
    pub fn begin_inheritance(&mut self, opening: u64) {
        let kept = &mut self.clients.kept;
        kept.inherited = self.database.as_ref().map(Database::snapshot);
        kept.opening = opening;
        kept.opened_at = self.database.as_ref().map_or(0, Database::version);
    }

    /// Begins to serve a client and selects it; returns its number. `state` is what
    /// [`take_state`](Self::take_state) returned where the client was served before.
    ///
    /// # Errors
    /// [`Error::Closed`], storage errors and corruption, and [`Error::InvalidArgument`] for a
    /// malformed state.
    pub fn attach(&mut self, name: &str, read_only: bool, state: Option<&[u8]>) -> Result<u64> {
        let database = self.database.as_ref().ok_or(Error::Closed)?;
        let client = Client::load(name, read_only, &database.snapshot())?;
        let state = match state {
            Some(state) => State::import(
                database,
                &self.clients.kept,
                self.lazy.is_loaded(),
                &mut Reader::new(state),
            )?,
            None => State::portable(),
        };
        let version = database.version();
        if let Some(joined) = state.joined {
            self.schema.rejoin(database, self.clients.last + 1, joined)?;
        }
        // A client that was taken for gone may be back.
        self.clients.kept.to_forget.retain(|gone| gone != name.as_bytes());
        self.clients.last += 1;
        let id = self.clients.last;
        self.clients.idle.insert(id, Idle { client, state, version });
        self.select(id);
        Ok(id)
    }

    /// Selects a client. While there is none of this number, every request fails.
    pub fn select(&mut self, id: u64) {
        if id == self.clients.current {
            return;
        }
        let version = self.database.as_ref().map_or(0, Database::version);
        let found = self.clients.idle.take(id).unwrap_or_else(|| Idle {
            client: Client::closed(),
            state: State::default(),
            version,
        });
        // While the state is held, each commit keeps what it replaces.
        self.state.forget_current();
        let before = Idle {
            client: std::mem::replace(&mut self.client, found.client),
            state: std::mem::replace(&mut self.state, found.state),
            version,
        };
        if found.version != version {
            // Other clients may have created or dropped collections.
            self.state.undo();
        }
        self.clients.idle.insert(self.clients.current, before);
        self.clients.current = id;
    }

    /// Begins message `seq` of the selected client; a repeated number marks a repeated message.
    pub fn begin_message(&mut self, seq: u64) {
        self.client.begin(seq);
    }

    /// Stops serving a client and closes what it has open.
    pub fn detach(&mut self, id: u64) {
        if id == self.clients.current {
            self.select(0);
        }
        self.clients.idle.remove(id);
        // If the version cannot be read, the upgrade counts as incomplete.
        let _ = self.schema.end(self.database.as_ref(), id);
    }

    /// Removes what is stored for a client, with the next commit.
    pub fn forget(&mut self, name: &str) {
        self.clients.kept.to_forget.push(name.as_bytes().to_vec());
    }

    /// Returns the names of the clients for which outcomes are stored.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn remembered(&self) -> Result<Vec<Vec<u8>>> {
        self.database
            .as_ref()
            .map_or(Err(Error::Closed), |database| database.snapshot().clients())
    }

    /// Exports what the selected client has open, for [`attach`](Self::attach) elsewhere; `None` if
    /// that has not changed since the last export. With `last` it is always exported, with the
    /// commits that its followers have not read; nothing may be committed here afterwards.
    pub fn take_state(&mut self, last: bool) -> Option<Vec<u8>> {
        if last {
            // The next session's database has the commits whose flush is owed, too.
            self.settle();
        }
        let database = self.database.as_ref()?;
        self.state.export(database, self.clients.kept.opening, last)
    }

    /// Returns the number of a client whose followers have commits to read; each is returned once.
    pub fn next_to_wake(&mut self) -> Option<u64> {
        let database = self.database.as_ref()?;
        if self.state.is_due(database) {
            return Some(self.clients.current);
        }
        self.clients
            .idle
            .iter_mut()
            .find_map(|(id, idle)| idle.state.is_due(database).then_some(id))
    }

    /// Ends inheritance: clients attached from now on have lost what they had open.
    pub fn end_inheritance(&mut self) {
        self.clients.kept.inherited = None;
    }

    /// Executes a request about the schema version and appends its reply.
    pub(crate) fn execute_schema(&mut self, request: &Request<'_>, out: &mut Writer) {
        let id = self.clients.current;
        let Some(database) = &self.database else {
            return out.error(&Error::Closed);
        };
        let result = match *request {
            Request::SchemaJoin { version } => {
                self.schema
                    .join(database, id, &self.client, version, out)
                    .map(|joined| {
                        if joined.upgrades {
                            for (_, idle) in self.clients.idle.iter_mut() {
                                idle.state.must_hear_of_schema = idle.state.joined.is_some();
                            }
                        }
                        self.state.joined = Some(joined);
                    })
            }
            Request::SchemaProgress { done, total } => {
                self.schema.report(id, done, total);
                out.begin();
                Ok(())
            }
            _ => self.schema.end(Some(database), id).map(|()| {
                if let Some(joined) = &mut self.state.joined {
                    joined.upgrades = false;
                }
                out.begin();
            }),
        };
        if let Err(error) = result {
            out.error(&error);
        }
    }

    /// Returns what the selected client may request.
    pub(crate) fn gate(&self) -> Gate {
        self.schema.gate(self.clients.current, self.state.joined)
    }

    /// Returns the version of the last commit.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.database.as_ref().map_or(0, Database::version)
    }
}
