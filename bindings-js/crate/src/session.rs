//! One client's use of one database: the order in which requests run and what a failed commit means for the rest.
//!
//! Consecutive writes of one message are separate atomic commits that become durable together, by one transaction of
//! the engine. They are seen by the lookups among them; any other read of the newest state makes them durable first.
//! If that fails the engine undoes them all: each is answered with the error, and the lookups are executed again.

use mangrove_engine::{CommitInfo, Database, Durability, Error, Result, WriteTransaction};

use crate::protocol::{Reader, Writer, op};
use crate::report;
use crate::state::State;
use crate::upkeep;

/// An open database and what its client has open in it.
pub struct Session {
    database: Option<Database>,
    state: State,
    /// Version of the newest commit that followers were told of.
    announced: u64,
}

impl Session {
    /// Serves `database`.
    pub fn new(database: Database) -> Self {
        Self {
            database: Some(database),
            state: State::default(),
            announced: 0,
        }
    }

    /// Executes a message and appends one reply for each of its requests. After a request that cannot be understood,
    /// or once the database is closed, one error stands for all that is left.
    pub fn execute(&mut self, message: &[u8], out: &mut Writer) {
        let mut reader = Reader::new(message);
        self.state.forget_if_timed();
        while !reader.is_empty() {
            let Some(database) = &self.database else {
                out.error(&Error::Closed);
                return;
            };
            run(database, &mut self.state, &mut reader, out);
            if reader.peek() == Some(op::REFRESH) {
                let start = out.begin();
                let _ = reader.u8();
                match self.refresh() {
                    Ok(is_newer) => out.flag(is_newer),
                    Err(error) => out.fail(&start, &error),
                }
            }
            if reader.peek() == Some(op::CLOSE) {
                let start = out.begin();
                // Only this request.
                let _ = reader.u8();
                if let Err(error) = self.close() {
                    out.fail(&start, &error);
                }
            }
        }
    }

    /// Whether relaxed commits wait for [`flush`](Self::flush).
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.database.as_ref().is_some_and(Database::needs_flush)
    }

    /// Whether there are commits that those who follow the commits were not told of, which they are herewith.
    pub fn has_news(&mut self) -> bool {
        let Some(database) = self.database.as_ref().filter(|_| self.state.has_followers()) else {
            return false;
        };
        let version = database.version();
        std::mem::replace(&mut self.announced, version) < version
    }

    /// Makes relaxed commits survive a power cut. Should it fail, the next write says so.
    pub fn flush(&mut self) {
        if let Some(database) = &self.database {
            let _ = database.flush();
        }
    }

    /// Goes over to what a writer beside this reader has committed. Snapshots stay what they were.
    fn refresh(&mut self) -> Result<bool> {
        self.state.forget_current();
        self.state.undo();
        self.database.as_mut().map_or(Err(Error::Closed), Database::refresh)
    }

    fn close(&mut self) -> Result<()> {
        self.state = State::default();
        self.database.take().map_or(Ok(()), Database::close)
    }
}

/// Executes requests up to one that closes the database or opens it again.
fn run(database: &Database, state: &mut State, reader: &mut Reader<'_>, out: &mut Writer) {
    let mut group = Group::new(database);
    while let Some(code) = reader.peek() {
        if !joins_group(code) {
            group.finish(state, out);
        }
        if code == op::CLOSE || code == op::REFRESH {
            return;
        }
        group.execute(state, reader, out);
    }
    group.finish(state, out);
}

fn is_write(code: u8) -> bool {
    matches!(
        code,
        op::SET | op::DELETE | op::CLEAR | op::BATCH | op::DROP | op::GET_OR_INSERT
    )
}

/// Whether a request leaves the writes before it as they are: it writes too, can read what is not committed yet, or
/// does not read the newest state.
fn joins_group(code: u8) -> bool {
    is_write(code)
        || matches!(
            code,
            op::USE
                | op::GET
                | op::GET_MANY
                | op::HAS_MANY
                | op::ENTRY
                | op::SCAN_NEXT
                | op::SCAN_SEEK
                | op::SCAN_CLOSE
                | op::SNAPSHOT_CLOSE
                | op::TRANSACTION_CLOSE
                | op::SAVEPOINT
                | op::ROLLBACK_TO
                | op::WITHIN
                | op::CHANGES_NEXT
                | op::CHANGES_CLOSE
                | op::BACKUP_NEXT
                | op::BACKUP_CLOSE
        )
}

/// How a reply relates to commits that may yet be undone.
#[derive(Clone, Copy)]
enum Effect {
    /// It holds either way.
    Stays,
    /// It is to be read again.
    SawGroup,
    Wrote,
}

struct Executed<'a> {
    request: Reader<'a>,
    reply_at: usize,
    effect: Effect,
}

/// Writes that become durable together, and the requests since the first of them.
struct Group<'d, 'm> {
    writes: Writes<'d>,
    executed: Vec<Executed<'m>>,
}

impl<'d, 'm> Group<'d, 'm> {
    fn new(database: &'d Database) -> Self {
        Self {
            writes: Writes::new(database),
            executed: Vec::new(),
        }
    }

    fn execute(&mut self, state: &mut State, reader: &mut Reader<'m>, out: &mut Writer) {
        let request = *reader;
        let reply_at = out.position();
        let effect = execute(state, &mut self.writes, reader, out);
        if self.writes.is_open() {
            self.executed.push(Executed {
                request,
                reply_at,
                effect,
            });
        }
    }

    fn finish(&mut self, state: &mut State, out: &mut Writer) {
        if !self.writes.is_open() {
            return;
        }
        state.forget_current();
        if let Err(error) = self.writes.finish() {
            state.undo();
            self.answer_again(state, &error, out);
        }
        self.executed.clear();
    }

    fn answer_again(&mut self, state: &mut State, error: &Error, out: &mut Writer) {
        let Some(first) = self.executed.first() else {
            return;
        };
        let base = first.reply_at;
        let replies = out.split_off(base);
        for (index, done) in self.executed.iter().enumerate() {
            let end = self
                .executed
                .get(index + 1)
                .map_or(replies.len(), |next| next.reply_at - base);
            match done.effect {
                Effect::Wrote => out.error(error),
                Effect::Stays => out.raw(&replies[done.reply_at - base..end]),
                Effect::SawGroup => {
                    let mut request = done.request;
                    execute(state, &mut self.writes, &mut request, out);
                }
            }
        }
    }
}

fn execute(state: &mut State, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Effect {
    let start = out.begin();
    let code = reader.peek().unwrap_or_default();
    writes.were_seen = false;
    match request(state, writes, reader, out) {
        Ok(()) if is_write(code) => Effect::Wrote,
        result => {
            if let Err(error) = result {
                out.fail(&start, &error);
            }
            if writes.were_seen {
                Effect::SawGroup
            } else {
                Effect::Stays
            }
        }
    }
}

fn request(state: &mut State, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
    let code = reader.u8()?;
    match code {
        op::FLUSH => writes.database.flush(),
        op::STATS => {
            // What is kept from read to read is no snapshot of the client's.
            state.forget_current();
            out.bytes(report::stats(&writes.database.stats()).as_bytes());
            Ok(())
        }
        op::VERIFY => {
            state.forget_current();
            out.bytes(report::verify(&writes.database.verify()?).as_bytes());
            Ok(())
        }
        op::PURGE => {
            let limit = reader.uv()?;
            state.forget_current();
            let purged = writes
                .database
                .purge_expired(usize::try_from(limit).unwrap_or(usize::MAX))?;
            out.uv(purged as u64);
            Ok(())
        }
        op::COMPACT => {
            let slices = reader.uv()?;
            state.forget_current();
            upkeep::compact(writes.database, slices, out)
        }
        op::COLLECTIONS => {
            report::collections(&writes.database.collections(), out);
            Ok(())
        }
        _ if is_write(code) => state.write(code, writes, reader, out),
        _ => state.read(code, writes, reader, out),
    }
}

/// The engine's transaction behind a group, begun by its first write.
pub(crate) struct Writes<'d> {
    pub(crate) database: &'d Database,
    transaction: Option<WriteTransaction<'d>>,
    durability: Durability,
    /// Set when a lookup was answered from the open transaction.
    were_seen: bool,
}

impl<'d> Writes<'d> {
    fn new(database: &'d Database) -> Self {
        Self {
            database,
            transaction: None,
            durability: Durability::None,
            were_seen: false,
        }
    }

    /// Whether there was a write that is not committed yet.
    pub(crate) fn is_open(&self) -> bool {
        self.transaction.is_some()
    }

    /// The open transaction, to look up what is in it.
    pub(crate) fn seen(&mut self) -> Option<&WriteTransaction<'d>> {
        self.were_seen = self.transaction.is_some();
        self.transaction.as_ref()
    }

    /// Runs one commit. `work` has to leave everything as it was, or the transaction failed, when it gives an error.
    pub(crate) fn commit<T>(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&mut WriteTransaction<'d>) -> Result<T>,
    ) -> Result<(CommitInfo, T)> {
        let transaction = match &mut self.transaction {
            Some(transaction) => transaction,
            none => none.insert(self.database.begin()?),
        };
        let result = work(transaction)?;
        self.durability = stronger(self.durability, durability);
        Ok((transaction.seal(), result))
    }

    /// Makes the commits visible to all and durable, or undoes them.
    fn finish(&mut self) -> Result<()> {
        let durability = std::mem::replace(&mut self.durability, Durability::None);
        match self.transaction.take() {
            Some(transaction) => transaction.commit(durability).map(drop),
            None => Ok(()),
        }
    }
}

fn stronger(a: Durability, b: Durability) -> Durability {
    match (a, b) {
        (Durability::Strict, _) | (_, Durability::Strict) => Durability::Strict,
        (Durability::Relaxed, _) | (_, Durability::Relaxed) => Durability::Relaxed,
        _ => Durability::None,
    }
}
