//! One client's use of one database: the order in which requests run and what a failed commit means for the rest.
//!
//! Consecutive writes of one message are separate atomic commits that become durable together, by one transaction of
//! the engine. They are seen by the lookups among them; any other read of the newest state makes them durable first.
//! If that fails the engine undoes them all: each is answered with the error, and what only read is executed again.
//!
//! A host that flushes files without waiting executes messages by [`Session::start`]: where commits wait for a flush, so
//! does the message, until [`Session::resume`]. No other is executed meanwhile.

use mangrove_engine::{
    CommitInfo, Database, Durability, Error, OpenFlush, Result, Submission, Transaction, WriteTransaction,
};

use crate::client::{Client, Outcome};
use crate::clients::{Clients, Kept};
use crate::protocol::{Reader, View, Writer, op};
use crate::report;
use crate::state::{Source, State};
use crate::upkeep;

/// An open database and what its client has open in it.
pub struct Session {
    pub(crate) database: Option<Database>,
    /// What the client at hand has open, and who it is. The others are in `clients`.
    pub(crate) state: State,
    pub(crate) client: Client,
    pub(crate) clients: Clients,
    waiting: Option<Waiting>,
    /// The host's flush that is under way.
    flush: Option<OpenFlush>,
    /// One that was not waited for.
    released: Option<OpenFlush>,
    /// How the host's last flush went.
    flushed: Result<()>,
}

/// How far a message was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// To its end.
    Done,
    /// Commits wait for a flush, and all behind them.
    AwaitsFlush,
}

/// A message whose commits wait for a flush.
struct Waiting {
    /// Where it goes on.
    next: usize,
    executed: Vec<Executed>,
}

impl Session {
    /// Serves `database`.
    pub fn new(database: Database) -> Self {
        Self {
            database: Some(database),
            state: State::default(),
            client: Client::default(),
            clients: Clients::default(),
            waiting: None,
            flush: None,
            released: None,
            flushed: Ok(()),
        }
    }

    /// Executes a message and appends one reply for each of its requests. After a request that cannot be understood,
    /// or once the database is closed, one error stands for all that is left.
    pub fn execute(&mut self, message: &[u8], out: &mut Writer) {
        self.proceed(message, 0, false, out);
    }

    /// As [`execute`](Self::execute), but where that would wait for a flush this returns: then the host flushes what [`begin_flush`](Self::begin_flush)
    /// says and calls [`resume`](Self::resume).
    pub fn start(&mut self, message: &[u8], out: &mut Writer) -> Progress {
        self.proceed(message, 0, true, out)
    }

    /// Goes on with the message that waits for a flush, and makes it where the host has not. It may have to wait again.
    pub fn resume(&mut self, message: &[u8], out: &mut Writer) -> Progress {
        let Some(Waiting { next, executed }) = self.waiting.take() else {
            return Progress::Done;
        };
        let flushed = std::mem::replace(&mut self.flushed, Ok(()));
        if let Some(database) = &self.database
            && let Err(error) = flushed.and_then(|()| database.flush())
        {
            self.state.undo();
            answer_again(
                &mut self.state,
                &mut self.client,
                database,
                message,
                &executed,
                &error,
                out,
            );
        }
        self.proceed(message, next, true, out)
    }

    /// Begins a flush that the host does: of the log, and before that of the data file if `Some(true)`. `None`: there is none to do.
    pub fn begin_flush(&mut self) -> Option<bool> {
        let flush = self.database.as_ref()?.begin_flush()?;
        let needs_data = flush.needs_data();
        self.flush = Some(flush);
        Some(needs_data)
    }

    /// The host's flush is over, also one that was released.
    pub fn end_flush(&mut self, result: Result<()>) {
        if let Some(flush) = self.flush.take() {
            self.flushed = flush.finish(result);
        } else if let Some(flush) = self.released.take() {
            // A failure is remembered by the engine.
            let _ = flush.finish(result);
        }
    }

    /// The host cannot wait for its flush; [`resume`](Self::resume) will make another. No other may begin before this one is over.
    pub fn release_flush(&mut self) {
        if let Some(mut flush) = self.flush.take() {
            flush.release();
            self.released = Some(flush);
        }
    }

    fn proceed(&mut self, message: &[u8], from: usize, may_wait: bool, out: &mut Writer) -> Progress {
        let mut reader = Reader::from(message, from);
        self.state.forget_if_timed();
        while !reader.is_empty() {
            let Some(database) = &self.database else {
                out.error(&Error::Closed);
                return Progress::Done;
            };
            if self.client.is_closed {
                out.error(&Error::Closed);
                return Progress::Done;
            }
            let writes = Writes::new(database, &mut self.client, &mut self.clients.kept, may_wait);
            let group = Group::new(message, writes);
            if let Some(executed) = group.run(&mut self.state, &mut reader, out) {
                let next = message.len() - reader.left();
                self.waiting = Some(Waiting { next, executed });
                return Progress::AwaitsFlush;
            }
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
        Progress::Done
    }

    /// As a message with one `GET`: appends the value of a key; tells whether there is one. With `goes_on` the state is the one that
    /// was read last, whatever expired since.
    pub fn get(&mut self, view: View, collection: u64, key: &[u8], goes_on: bool, into: &mut Vec<u8>) -> Result<bool> {
        self.source(view, collection, goes_on)?.get_into(key, into)
    }

    /// As a message with one `HAS_MANY` of one key.
    pub fn has(&mut self, view: View, collection: u64, key: &[u8], goes_on: bool) -> Result<bool> {
        self.source(view, collection, goes_on)?.contains(key)
    }

    fn source(&mut self, view: View, collection: u64, goes_on: bool) -> Result<Source<'_>> {
        if !goes_on {
            self.state.forget_if_timed();
        }
        // Between messages nothing waits for its commit.
        self.state
            .source(self.database.as_ref().ok_or(Error::Closed)?, view, collection)
    }

    /// Whether relaxed commits wait for [`flush`](Self::flush).
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.database.as_ref().is_some_and(Database::needs_flush)
    }

    /// Merges a slice of the memtables, if they are worth it; tells whether there is more to merge.
    #[must_use]
    pub fn merge_slice(&self) -> bool {
        let database = self.database.as_ref();
        database.is_some_and(|database| database.merge_slice().unwrap_or(false))
    }

    /// Whether there are commits for those who follow the commits and had taken all before; true once for each.
    pub fn has_news(&mut self) -> bool {
        self.database
            .as_ref()
            .is_some_and(|database| self.state.has_news(database))
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
        let database = self.database.as_mut().ok_or(Error::Closed)?;
        let before = database.snapshot();
        let is_newer = database.refresh()?;
        if is_newer {
            self.state.refresh(&before, database);
        }
        Ok(is_newer)
    }

    /// For one of several clients the database stays open.
    fn close(&mut self) -> Result<()> {
        self.state = State::default();
        if self.client.is_remembered() {
            self.client.is_closed = true;
            return Ok(());
        }
        self.database.take().map_or(Ok(()), Database::close)
    }
}

fn is_write(code: u8) -> bool {
    matches!(
        code,
        op::SET | op::DELETE | op::CLEAR | op::BATCH | op::DROP | op::GET_OR_INSERT | op::RENAME
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
                | op::CHANGES_READY
                | op::BACKUP_NEXT
                | op::BACKUP_CLOSE
                | op::VERIFY_CLOSE
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

/// A request by where it begins in its message, and its reply by where it begins among the replies.
struct Executed {
    request_at: usize,
    request_end: usize,
    reply_at: usize,
    effect: Effect,
}

/// Writes that become durable together, and the requests since the first of them.
struct Group<'a> {
    message: &'a [u8],
    writes: Writes<'a>,
    executed: Vec<Executed>,
}

impl<'a> Group<'a> {
    fn new(message: &'a [u8], writes: Writes<'a>) -> Self {
        Self {
            message,
            writes,
            executed: Vec::new(),
        }
    }

    /// Executes requests up to one that closes the database or opens it again, or to commits that wait for a flush, which are given.
    fn run(mut self, state: &mut State, reader: &mut Reader<'_>, out: &mut Writer) -> Option<Vec<Executed>> {
        while !self.writes.awaits_flush {
            let code = reader.peek();
            if !code.is_some_and(joins_group) {
                self.finish(state, out);
            }
            if self.writes.awaits_flush {
                break;
            }
            if matches!(code, None | Some(op::CLOSE | op::REFRESH)) {
                return None;
            }
            self.execute(state, reader, out);
        }
        Some(self.executed)
    }

    fn execute(&mut self, state: &mut State, reader: &mut Reader<'_>, out: &mut Writer) {
        let request_at = self.message.len() - reader.left();
        let reply_at = out.position();
        let effect = if let Some(outcome) = self.writes.client.outcome_at(request_at) {
            // It was done before, and the answer was lost.
            reader.skip(outcome.len);
            out.raw(&outcome.reply);
            Effect::Stays
        } else {
            self.writes.request_at = request_at;
            self.writes.message_len = self.message.len();
            execute(state, &mut self.writes, reader, out)
        };
        if self.writes.is_open() || self.writes.awaits_flush {
            self.executed.push(Executed {
                request_at,
                request_end: self.message.len() - reader.left(),
                reply_at,
                effect,
            });
        }
    }

    /// Takes note of what the requests that committed are answered.
    fn remember(&mut self, out: &Writer) {
        if !self.writes.client.is_remembered() {
            return;
        }
        let replies = out.as_slice();
        for (index, done) in self.executed.iter().enumerate() {
            let end = self.executed.get(index + 1).map_or(replies.len(), |next| next.reply_at);
            if matches!(done.effect, Effect::Wrote) {
                self.writes.client.push(Outcome {
                    at: done.request_at,
                    len: done.request_end - done.request_at,
                    reply: replies[done.reply_at..end].to_vec(),
                });
            }
        }
    }

    fn finish(&mut self, state: &mut State, out: &mut Writer) {
        if !self.writes.is_open() {
            return;
        }
        state.forget_current();
        let mark = self.writes.client.mark();
        self.remember(out);
        if let Err(error) = self.writes.finish() {
            state.undo();
            let Writes {
                database, client, kept, ..
            } = &mut self.writes;
            client.undo_to(mark);
            if matches!(error, Error::StorageFull { .. }) {
                // The next try finds what it keeps.
                kept.inherited = None;
            }
            answer_again(state, client, database, self.message, &self.executed, &error, out);
        }
        if !self.writes.awaits_flush {
            self.executed.clear();
        }
    }
}

/// Gives other replies to requests whose commits were undone.
fn answer_again(
    state: &mut State,
    client: &mut Client,
    database: &Database,
    message: &[u8],
    executed: &[Executed],
    error: &Error,
    out: &mut Writer,
) {
    let Some(first) = executed.first() else {
        return;
    };
    let base = first.reply_at;
    let replies = out.split_off(base);
    let mut kept = Kept::default();
    let mut writes = Writes::new(database, client, &mut kept, false);
    for (index, done) in executed.iter().enumerate() {
        let end = executed
            .get(index + 1)
            .map_or(replies.len(), |next| next.reply_at - base);
        match done.effect {
            Effect::Wrote => out.error(error),
            Effect::Stays => out.raw(&replies[done.reply_at - base..end]),
            Effect::SawGroup => {
                execute(state, &mut writes, &mut Reader::from(message, done.request_at), out);
            }
        }
    }
}

fn execute(state: &mut State, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Effect {
    let start = out.begin();
    let code = reader.peek().unwrap_or_default();
    writes.were_seen = false;
    match request(state, writes, reader, out) {
        Ok(()) if is_write(code) || writes.awaits_flush => Effect::Wrote,
        result => {
            if let Err(error) = result {
                out.fail(&start, &error);
            }
            if writes.were_seen && is_write(code) {
                // Executed again it would write, outside of any group.
                Effect::Wrote
            } else if writes.were_seen {
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
            out.bytes(report::stats(writes.database).as_bytes());
            Ok(())
        }
        op::VERIFY => {
            state.forget_current();
            state.verify(writes.database, reader, out)
        }
        op::LAYOUT => {
            state.forget_current();
            state.layout(writes.database, reader, out)
        }
        op::PURGE => {
            let limit = reader.uv()?;
            writes.client.check_writable()?;
            state.forget_current();
            let purged = writes
                .database
                .purge_expired(usize::try_from(limit).unwrap_or(usize::MAX))?;
            out.uv(purged as u64);
            Ok(())
        }
        op::COMPACT => {
            let (slices, threshold_bytes) = (reader.uv()?, reader.uv()?);
            writes.client.check_writable()?;
            state.forget_current();
            // What it frees could not be given back.
            writes.kept.inherited = None;
            upkeep::compact(writes.database, slices, threshold_bytes, out)
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
    /// Whether commits may be left to a flush of the host.
    may_wait: bool,
    /// They were.
    awaits_flush: bool,
    /// Who writes, and what was answered.
    pub(crate) client: &'d mut Client,
    kept: &'d mut Kept,
    /// Where the request under way begins, and how long its message is.
    request_at: usize,
    message_len: usize,
}

impl<'d> Writes<'d> {
    fn new(database: &'d Database, client: &'d mut Client, kept: &'d mut Kept, may_wait: bool) -> Self {
        Self {
            client,
            kept,
            request_at: 0,
            message_len: 0,
            database,
            transaction: None,
            durability: Durability::None,
            were_seen: false,
            may_wait,
            awaits_flush: false,
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

    /// Runs one commit. Where `work` fails with a part of its changes made, the whole group fails.
    pub(crate) fn commit<T>(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&mut WriteTransaction<'d>) -> Result<T>,
    ) -> Result<(CommitInfo, T)> {
        self.client.check_writable()?;
        let transaction = match &mut self.transaction {
            Some(transaction) => transaction,
            none => none.insert(self.database.begin()?),
        };
        let result = transaction.together(work)?;
        self.durability = stronger(self.durability, durability);
        Ok((transaction.seal(), result))
    }

    /// Makes the commits visible to all and durable, or undoes them.
    fn finish(&mut self) -> Result<()> {
        let durability = std::mem::replace(&mut self.durability, Durability::None);
        let Some(mut transaction) = self.transaction.take() else {
            return Ok(());
        };
        note(&mut transaction, self.client, self.kept)?;
        let submission = submit(transaction, durability, self.may_wait)?;
        self.awaits_flush = submission.awaits_flush;
        Ok(())
    }

    /// Commits a transaction that is no part of the group; `left` bytes of the message follow its request.
    pub(crate) fn commit_other(
        &mut self,
        durability: Durability,
        transaction: Transaction,
        left: usize,
    ) -> Result<CommitInfo> {
        let mark = self.client.mark();
        let (at, may_wait) = (self.request_at, self.may_wait);
        let len = self.message_len.saturating_sub(left + at);
        let (client, kept) = (&mut *self.client, &mut *self.kept);
        let submission = transaction.commit_by(|mut transaction| {
            let mut reply = Writer::default();
            reply.begin();
            reply.uv(transaction.seal().version);
            if client.is_remembered() {
                client.push(Outcome {
                    at,
                    len,
                    reply: reply.into_bytes(),
                });
            }
            note(&mut transaction, client, kept)?;
            submit(transaction, durability, may_wait)
        });
        if submission.is_err() {
            self.client.undo_to(mark);
        }
        let submission = submission?;
        self.awaits_flush = submission.awaits_flush;
        Ok(submission.info)
    }
}

/// Stores with a commit what it is answered, and that clients are gone.
fn note(transaction: &mut WriteTransaction<'_>, client: &Client, kept: &mut Kept) -> Result<()> {
    if client.is_remembered() {
        transaction.remember_client(client.name(), &client.encode())?;
    }
    while let Some(gone) = kept.to_forget.pop() {
        transaction.forget_client(&gone)?;
    }
    Ok(())
}

fn submit(transaction: WriteTransaction<'_>, durability: Durability, may_wait: bool) -> Result<Submission> {
    if may_wait {
        return transaction.submit(durability);
    }
    let info = transaction.commit(durability)?;
    Ok(Submission {
        info,
        awaits_flush: false,
    })
}

fn stronger(a: Durability, b: Durability) -> Durability {
    match (a, b) {
        (Durability::Strict, _) | (_, Durability::Strict) => Durability::Strict,
        (Durability::Relaxed, _) | (_, Durability::Relaxed) => Durability::Relaxed,
        _ => Durability::None,
    }
}
