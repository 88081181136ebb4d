//! The session of a database: the order in which requests run, and what a failed commit means for
//! the lazy part.
//!
//! Consecutive writes of a message form a group: separate atomic commits that become durable
//! together, in one transaction of the engine. Lookups among them see them; any other read of the
//! newest state first makes them durable. If that fails, the engine undoes the whole group, and its
//! writes and the lookups that saw them are answered with the error. If it fails for lack of space,
//! they are executed once more, each in a group of its own: some may have room without the others.
//!
//! A host that flushes files asynchronously executes messages with [`Session::start`]. If commits
//! wait for a flush, so does the message, until [`Session::resume`]; no other message is executed
//! meanwhile. With [`Session::execute_owing`] only the reply waits: others are executed meanwhile, and
//! see its last commits after the flush. So that nobody decides by a state that is no longer the newest,
//! this is for messages that change records only, and what is not such a message is executed after a
//! flush ([`State::is_plain`]).
//!
//! A message whose reply is full is cut: the group ends, and the requests that are left are for the
//! host to execute as a message of its own. A repeated message is not cut before its last committed
//! request: under another number that would be executed again.

use std::ops::Range;

use mangrove_engine::{Database, Error, OpenFlush, Result};

use crate::client::{Client, Outcome};
use crate::idle_clients::Clients;
use crate::lazy::LazyPart;
use crate::pending::{Flushing, Writes};
use crate::protocol::{REPLY_BYTES, Reader, View, Writer};
use crate::request::Request;
use crate::schema::{Gate, Schema};
use crate::source::Source;
use crate::state::State;

/// How many expired records at most `close` removes: they take some 20 ms.
const PURGED_AT_CLOSE: usize = 4096;

/// An open database and what its clients have open in it.
pub struct Session {
    pub(crate) database: Option<Database>,
    /// What the selected client has open, and its identity. The others are in `clients`.
    pub(crate) state: State,
    pub(crate) client: Client,
    pub(crate) clients: Clients,
    pub(crate) lazy: LazyPart,
    pub(crate) schema: Schema,
    /// The first client leaves the database open when it closes it.
    keeps_open: bool,
    /// The reply to the last message has to wait for a flush.
    owes_flush: bool,
    /// Commits may be invisible still whose replies wait for a flush.
    has_owed: bool,
    waiting: Option<Waiting>,
    /// Number of replies to the current message so far.
    replies: usize,
    /// Size in bytes at which the reply is cut.
    reply_bytes: usize,
    /// The host's flush in progress.
    flush: Option<OpenFlush>,
    /// A flush of the host that was released and has not ended.
    released: Option<OpenFlush>,
    /// Result of the host's last flush.
    flushed: Result<()>,
}

/// How far a message was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// To its end.
    Done,
    /// Up to commits that wait for a flush.
    AwaitsFlush,
    /// Up to this place, as the reply is full.
    Cut {
        /// Where in the message the requests begin that were not executed.
        at: usize,
        /// Number of requests before that.
        replies: usize,
    },
}

/// A message whose commits wait for a flush.
struct Waiting {
    /// Where in the message it continues.
    next: usize,
    executed: Vec<Executed>,
}

impl Session {
    /// Creates a session for `database`.
    pub fn new(database: Database) -> Self {
        Self {
            database: Some(database),
            state: State::default(),
            client: Client::default(),
            clients: Clients::default(),
            lazy: LazyPart::default(),
            schema: Schema::default(),
            keeps_open: false,
            owes_flush: false,
            has_owed: false,
            waiting: None,
            replies: 0,
            reply_bytes: REPLY_BYTES,
            flush: None,
            released: None,
            flushed: Ok(()),
        }
    }

    /// Says that this is the core of a module that was split, without its lazy part. Returns whether the
    /// database has indexes, so that writes need the lazy part.
    pub fn lacks_lazy(&mut self) -> bool {
        self.lazy = LazyPart::Lacking { is_wanted: false };
        self.database.as_ref().is_some_and(Database::has_indexes)
    }

    /// Says that the lazy part of the module is loaded, or why it could not be.
    pub fn end_loading(&mut self, failure: Option<String>) {
        self.lazy = failure.map_or(LazyPart::Loaded, LazyPart::Failed);
    }

    /// Executes a message and appends one reply per request. After a malformed request, or once the
    /// database is closed, a single error replaces all remaining replies.
    pub fn execute_message(&mut self, message: &[u8], out: &mut Writer) -> Progress {
        self.replies = 0;
        self.settle_for(message);
        self.proceed(message, 0, Flushing::Here, out)
    }

    /// As [`execute_message`](Self::execute_message), but does not flush the commits that the message
    /// ends with: if [`owes_flush`](Self::owes_flush), the host delivers the reply after a flush that
    /// began later, and never if that failed.
    pub fn execute_owing(&mut self, message: &[u8], out: &mut Writer) -> Progress {
        self.replies = 0;
        self.owes_flush = false;
        if !self.is_plain(message) {
            self.settle();
            return self.proceed(message, 0, Flushing::Here, out);
        }
        let progress = self.proceed(message, 0, Flushing::Owed, out);
        // A transaction that lost against a commit that is still invisible would lose again at once.
        self.owes_flush |= self.has_owed && commits_transaction(message) && self.awaits_flush();
        self.has_owed |= self.owes_flush;
        progress
    }

    /// Whether the message changes records only, and decides nothing by the newest state.
    fn is_plain(&mut self, message: &[u8]) -> bool {
        let Some(database) = self.database.as_ref() else {
            return false;
        };
        let mut reader = Reader::new(message);
        while !reader.is_empty() {
            match Request::read(&mut reader) {
                Ok(request) if self.state.is_plain(&request, database) => {}
                _ => return false,
            }
        }
        true
    }

    fn awaits_flush(&self) -> bool {
        self.database.as_ref().is_some_and(Database::awaits_flush)
    }

    /// Makes commits visible whose flush is owed, if the message may decide by the newest state, or
    /// would lose against them with a transaction.
    fn settle_for(&mut self, message: &[u8]) {
        if self.has_owed && (commits_transaction(message) || !self.is_plain(message)) {
            self.settle();
        }
    }

    /// Makes the commits durable and visible whose flush is owed.
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.has_owed) {
            return;
        }
        if let Some(database) = self.database.as_ref().filter(|_| self.awaits_flush()) {
            // After a failure nothing is written any more, which the next commit reports.
            let _ = database.flush();
            self.state.forget_current();
        }
    }

    /// Whether the reply to the message that [`execute_owing`](Self::execute_owing) executed has to
    /// wait for a flush.
    #[must_use]
    pub fn owes_flush(&self) -> bool {
        self.owes_flush
    }

    /// As [`execute_message`](Self::execute_message), but returns instead of waiting for a flush. The host then
    /// performs the flush that [`begin_flush`](Self::begin_flush) describes and calls
    /// [`resume`](Self::resume).
    pub fn start(&mut self, message: &[u8], out: &mut Writer) -> Progress {
        self.replies = 0;
        self.settle_for(message);
        self.proceed(message, 0, Flushing::Awaited, out)
    }

    /// As [`execute_owing`](Self::execute_owing), but where that would flush, returns as
    /// [`start`](Self::start) does.
    pub fn start_owing(&mut self, message: &[u8], out: &mut Writer) -> Progress {
        if self.is_plain(message) {
            return self.execute_owing(message, out);
        }
        self.owes_flush = false;
        self.start(message, out)
    }

    /// Continues the message that waits for a flush, and performs the flush if the host has not.
    /// The message may have to wait again.
    pub fn resume(&mut self, message: &[u8], out: &mut Writer) -> Progress {
        let Some(Waiting { next, executed }) = self.waiting.take() else {
            return Progress::Done;
        };
        let flushed = std::mem::replace(&mut self.flushed, Ok(()));
        if let Some(database) = &self.database
            && let Err(error) = flushed.and_then(|()| database.flush())
        {
            self.state.undo();
            fail(&executed, &error, out);
        }
        self.proceed(message, next, Flushing::Awaited, out)
    }

    /// Begins a flush that the host performs: of the log and, with `Some(true)`, of the data file
    /// before it. `None` if there is nothing to flush.
    pub fn begin_flush(&mut self) -> Option<bool> {
        let flush = self.database.as_ref()?.begin_flush()?;
        let needs_data = flush.needs_data();
        self.flush = Some(flush);
        Some(needs_data)
    }

    /// Ends the host's flush, including one that was released.
    ///
    /// # Errors
    /// The given one, or what the engine found wrong after the flush. It remembers the failure.
    pub fn end_flush(&mut self, result: Result<()>) -> Result<()> {
        // Commits become visible.
        self.state.forget_current();
        if let Some(flush) = self.flush.take() {
            self.flushed = flush.finish(result);
            self.flushed.clone()
        } else if let Some(flush) = self.released.take() {
            flush.finish(result)
        } else {
            Ok(())
        }
    }

    /// Stops waiting for the host's flush: [`resume`](Self::resume) performs its own. The host must
    /// not begin another one before this one ends.
    pub fn release_flush(&mut self) {
        if let Some(mut flush) = self.flush.take() {
            flush.release();
            self.released = Some(flush);
        }
    }

    fn proceed(&mut self, message: &[u8], from: usize, flushing: Flushing, out: &mut Writer) -> Progress {
        let mut reader = Reader::from(message, from);
        self.state.forget_if_timed();
        while !reader.is_empty() {
            let at = message.len() - reader.left();
            if is_full(&self.client, at, self.reply_bytes, out) {
                return Progress::Cut {
                    at,
                    replies: self.replies,
                };
            }
            let database = self.database.as_ref().filter(|_| !self.client.is_closed);
            let Some(database) = database else {
                out.error(&Error::Closed);
                break;
            };
            let gate = self.schema.gate(self.clients.current, self.state.joined);
            let writes = Writes::new(database, &mut self.client, &mut self.clients.kept, flushing);
            let replies = (&mut self.replies, self.reply_bytes);
            let group = Group::new(message, writes, gate, &mut self.lazy, replies);
            let end = group.run(&mut self.state, &mut reader, out);
            match end {
                End::Message => break,
                End::Full => {}
                End::AwaitsFlush(_) if flushing == Flushing::Owed && reader.is_empty() => self.owes_flush = true,
                End::AwaitsFlush(executed) if flushing == Flushing::Owed => {
                    if let Err(error) = database.flush() {
                        self.state.undo();
                        fail(&executed, &error, out);
                    }
                }
                End::AwaitsFlush(executed) => {
                    let next = message.len() - reader.left();
                    self.waiting = Some(Waiting { next, executed });
                    return Progress::AwaitsFlush;
                }
                End::Undone(executed) => self.execute_apart(message, &executed, out),
                End::Schema(request) => self.execute_schema(&request, out),
                End::Refresh => match self.refresh() {
                    Ok(is_newer) => {
                        out.begin();
                        out.flag(is_newer);
                    }
                    Err(error) => out.error(&error),
                },
                End::Close => match self.close() {
                    Ok(()) => {
                        out.begin();
                    }
                    Err(error) => out.error(&error),
                },
            }
        }
        Progress::Done
    }

    /// Executes the writes of a group that was undone, and the lookups that saw it, one by one.
    #[cold]
    fn execute_apart(&mut self, message: &[u8], executed: &[Executed], out: &mut Writer) {
        let undone = std::mem::take(out);
        let start = executed.first().map_or(0, |first| first.reply_at);
        out.raw(&undone.as_slice()[..start]);
        let so_far = self.replies;
        // What is not executed again cannot be cut off.
        self.reply_bytes = usize::MAX;
        for (done, reply) in replies(executed, undone.as_slice()) {
            if done.is_write || done.saw_group {
                self.proceed(&message[..done.request.end], done.request.start, Flushing::Here, out);
            } else {
                out.raw(reply);
            }
        }
        self.reply_bytes = REPLY_BYTES;
        self.replies = so_far;
    }

    /// Looks up a key like a message with one `Get`: appends its value and returns whether there is
    /// one. With `same_state`, reads the state of the previous lookup, even if records have expired
    /// since.
    pub fn get(
        &mut self,
        view: View,
        collection: u64,
        key: &[u8],
        same_state: bool,
        into: &mut Vec<u8>,
    ) -> Result<bool> {
        self.source(view, collection, same_state)?.get_into(key, into)
    }

    /// Looks up a key like a message with one `HasMany` of that key.
    pub fn has(&mut self, view: View, collection: u64, key: &[u8], same_state: bool) -> Result<bool> {
        self.source(view, collection, same_state)?.contains(key)
    }

    fn source(&mut self, view: View, collection: u64, same_state: bool) -> Result<Source<'_>> {
        if self.gate() == Gate::Shut {
            return Err(Error::Closed);
        }
        if !same_state {
            self.state.forget_if_timed();
        }
        // No group is open between messages.
        self.state
            .source(self.database.as_ref().ok_or(Error::Closed)?, view, collection)
    }

    /// Whether relaxed commits wait for [`flush`](Self::flush).
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.database.as_ref().is_some_and(Database::needs_flush)
    }

    /// Merges a slice of the memtables if that is worthwhile; returns whether there is more to
    /// merge.
    #[must_use]
    pub fn merge_slice(&self) -> bool {
        let database = self.database.as_ref();
        database.is_some_and(|database| database.merge_slice().unwrap_or(false))
    }

    /// Returns the database's sealed key; `None` if it is not encrypted.
    #[cfg(feature = "encryption")]
    #[must_use]
    pub fn sealed_key(&self) -> Option<mangrove_engine::SealedKey> {
        self.database.as_ref()?.sealed_key()
    }

    /// Flushes relaxed commits to disk. If that fails, the next write reports it.
    pub fn flush(&mut self) {
        if let Some(database) = &self.database {
            let _ = database.flush();
        }
    }

    /// Moves to what the writer beside this reader has committed. Snapshots do not change.
    // A root of the lazy part of the module: see `lazy`.
    // Lazy root.
    #[inline(never)]
    fn refresh(&mut self) -> Result<bool> {
        self.state.forget_current();
        self.state.undo();
        let database = self.database.as_mut().ok_or(Error::Closed)?;
        let before = database.snapshot();
        let is_newer = database.refresh()?;
        if is_newer {
            self.state.refresh(&before, database);
            if self.state.joined.is_some() {
                self.schema.reload(database)?;
            }
        }
        Ok(is_newer)
    }

    /// Says whether the first client leaves the database open for others when it closes it.
    pub fn keep_open(&mut self, keeps_open: bool) {
        self.keeps_open = keeps_open;
        if !keeps_open {
            self.select(0);
            self.client.is_closed = false;
        }
    }

    /// Closes what the client has open and, if that is the first one, the database.
    fn close(&mut self) -> Result<()> {
        self.state = State::default();
        if self.client.is_remembered() || self.keeps_open {
            self.client.is_closed = true;
            return Ok(());
        }
        let Some(database) = self.database.take() else {
            return Ok(());
        };
        // A program that ends before the host's first sweep would never reclaim them. A failure is
        // one of the next sweep.
        let _ = database.purge_expired(PURGED_AT_CLOSE);
        database.close()
    }
}

/// A request of a group: its place in the message, and where its reply begins among the replies.
struct Executed {
    request: Range<usize>,
    reply_at: usize,
    is_write: bool,
    /// It saw writes of the group.
    saw_group: bool,
}

/// Why a group ended.
enum End<'m> {
    /// The message is at its end.
    Message,
    /// The reply is full.
    Full,
    /// The group's commits wait for a flush.
    AwaitsFlush(Vec<Executed>),
    /// There was no room for the group.
    Undone(Vec<Executed>),
    /// The request that was just read is about the schema version.
    Schema(Request<'m>),
    /// The request that was just read refreshes the database.
    Refresh,
    /// The request that was just read closes the database.
    Close,
}

/// Writes that become durable together, and the requests since the first of them.
struct Group<'m, 'd> {
    message: &'m [u8],
    writes: Writes<'d>,
    gate: Gate,
    lazy: &'d mut LazyPart,
    replies: &'d mut usize,
    reply_bytes: usize,
    executed: Vec<Executed>,
    /// It had no room, so its requests have to be executed one by one.
    is_undone: bool,
}

impl<'m, 'd> Group<'m, 'd> {
    fn new(
        message: &'m [u8],
        writes: Writes<'d>,
        gate: Gate,
        lazy: &'d mut LazyPart,
        (replies, reply_bytes): (&'d mut usize, usize),
    ) -> Self {
        Self {
            message,
            writes,
            gate,
            lazy,
            replies,
            reply_bytes,
            executed: Vec::new(),
            is_undone: false,
        }
    }

    fn run(mut self, state: &mut State, reader: &mut Reader<'m>, out: &mut Writer) -> End<'m> {
        loop {
            if self.writes.awaits_flush {
                return End::AwaitsFlush(self.executed);
            }
            if self.is_undone {
                return End::Undone(self.executed);
            }
            let before = *reader;
            let at = self.message.len() - before.left();
            if reader.is_empty() || is_full(self.writes.client, at, self.reply_bytes, out) {
                self.finish(state, out);
                if !(self.writes.awaits_flush || self.is_undone) {
                    return if reader.is_empty() { End::Message } else { End::Full };
                }
                continue;
            }
            let reply_at = out.position();
            *self.replies += 1;
            if let Some(outcome) = self.writes.client.outcome_at(at) {
                // A repeated request: it was committed, but the reply was lost.
                reader.skip(outcome.len);
                out.raw(&outcome.reply);
                self.note(at..at + outcome.len, reply_at, false, false);
                continue;
            }
            let request = Request::read(reader);
            let is_apart = |request: &Request<'_>| matches!(request, Request::Write(write) if state.is_apart(write));
            if !request
                .as_ref()
                .is_ok_and(|request| request.joins_group() && !is_apart(request))
            {
                self.finish(state, out);
                if self.writes.awaits_flush || self.is_undone {
                    *self.replies -= 1;
                    *reader = before;
                    continue;
                }
            }
            match request {
                Ok(request) if !self.gate.admits(&request) => {
                    Gate::refuse(out);
                    self.note(at..self.message.len() - reader.left(), reply_at, false, false);
                }
                Ok(request) if request.needs_lazy() && !self.lazy.is_loaded() => {
                    self.lazy.refuse(out);
                    self.note(at..self.message.len() - reader.left(), reply_at, false, false);
                }
                Ok(request)
                    if !self.lazy.is_loaded()
                        && request.may_change_indexes()
                        && (self.writes.database.has_indexes() || request.states_index_keys()) =>
                {
                    self.lazy.refuse_write(out);
                    self.note(at..self.message.len() - reader.left(), reply_at, false, false);
                }
                Ok(Request::ChangesOpen { .. }) if self.writes.client.has_outcomes_from(at) => {
                    // Repeated: it would begin behind commits that were asked for after it.
                    let horizon = self.writes.database.version().into();
                    out.error(&Error::TruncatedFeed { horizon });
                    self.note(at..self.message.len() - reader.left(), reply_at, false, false);
                }
                Ok(request @ (Request::SchemaJoin { .. } | Request::SchemaProgress { .. } | Request::SchemaEnd {})) => {
                    return End::Schema(request);
                }
                Ok(Request::Refresh {}) => return End::Refresh,
                Ok(Request::Close {}) => return End::Close,
                _ => {
                    let may_be_cut = matches!(request, Ok(Request::GetMany { .. }));
                    self.execute_in_group(state, request, at..self.message.len() - reader.left(), out);
                    // What saw the group and is cut can only be continued in a committed state.
                    if may_be_cut && self.writes.were_seen && out.position() - reply_at >= REPLY_BYTES {
                        self.executed.pop();
                        out.truncate(reply_at);
                        self.finish(state, out);
                        *self.replies -= 1;
                        *reader = before;
                    }
                }
            }
        }
    }

    fn execute_in_group(
        &mut self,
        state: &mut State,
        request: Result<Request<'_>>,
        place: Range<usize>,
        out: &mut Writer,
    ) {
        let reply_at = out.position();
        let start = out.begin();
        let is_write = matches!(request, Ok(Request::Write(_)));
        let ends_group = matches!(
            request,
            Ok(Request::DeclareIndexes { .. }
                | Request::DropIndex { .. }
                | Request::IndexSlice { .. }
                | Request::Lazy { .. })
        );
        self.writes.place = place.clone();
        self.writes.were_seen = false;
        let result = request.and_then(|request| state.execute_request(&request, &mut self.writes, out));
        if let Err(error) = result {
            out.fail(&start, &error);
        }
        // The group was over before these, so what is open is theirs.
        let is_write = is_write || ends_group && self.writes.is_open();
        let (wrote, saw_group) = (is_write || self.writes.awaits_flush, self.writes.were_seen);
        self.note(place, reply_at, wrote, saw_group);
        // Transactions compare their indexes with the committed ones, and a slice may fail halfway,
        // with all of its group.
        if ends_group {
            self.finish(state, out);
        }
    }

    fn note(&mut self, request: Range<usize>, reply_at: usize, is_write: bool, saw_group: bool) {
        if self.writes.is_open() || self.writes.awaits_flush {
            self.executed.push(Executed {
                request,
                reply_at,
                is_write,
                saw_group,
            });
        }
    }

    /// Remembers the replies to the group's writes, to be stored with its commit.
    fn remember(&mut self, out: &Writer) {
        if !self.writes.client.is_remembered() {
            return;
        }
        for (done, reply) in replies(&self.executed, out.as_slice()) {
            if done.is_write && succeeded(reply) {
                self.writes.client.push(Outcome {
                    at: done.request.start,
                    len: done.request.len(),
                    reply: reply.to_vec(),
                });
            }
        }
    }

    /// Commits the group, or fails all of it.
    fn finish(&mut self, state: &mut State, out: &mut Writer) {
        if !self.writes.is_open() {
            return;
        }
        state.forget_current();
        let mark = self.writes.client.mark();
        self.remember(out);
        if let Err(error) = self.writes.finish() {
            state.undo();
            self.writes.client.undo_to(mark);
            if matches!(error, Error::StorageFull { .. }) {
                // Frees the space that the inherited state holds, for the next attempt.
                self.writes.end_inheritance();
                self.is_undone = self.executed.len() > 1;
            }
            if self.is_undone {
                return;
            }
            fail(&self.executed, &error, out);
        }
        if !self.writes.awaits_flush {
            self.executed.clear();
        }
    }
}

fn commits_transaction(message: &[u8]) -> bool {
    let mut reader = Reader::new(message);
    while let Ok(request) = Request::read(&mut reader) {
        if matches!(request, Request::TransactionCommit { .. }) {
            return true;
        }
    }
    false
}

/// Whether a message is cut at `at`.
fn is_full(client: &Client, at: usize, reply_bytes: usize, out: &Writer) -> bool {
    out.position() >= reply_bytes && !client.has_outcomes_from(at)
}

/// Pairs requests with their replies; the last reply ends where `replies` ends.
fn replies<'r>(executed: &'r [Executed], replies: &'r [u8]) -> impl Iterator<Item = (&'r Executed, &'r [u8])> {
    executed.iter().enumerate().map(move |(index, done)| {
        let end = executed.get(index + 1).map_or(replies.len(), |next| next.reply_at);
        (done, &replies[done.reply_at..end])
    })
}

fn succeeded(reply: &[u8]) -> bool {
    reply.first() == Some(&0)
}

/// Replaces the replies of writes that were undone, and of requests that saw them.
fn fail(executed: &[Executed], error: &Error, out: &mut Writer) {
    let Some(first) = executed.first() else {
        return;
    };
    let mut failed = Writer::default();
    for (done, reply) in replies(executed, out.as_slice()) {
        if done.saw_group || done.is_write && succeeded(reply) {
            failed.error(error);
        } else {
            failed.raw(reply);
        }
    }
    out.truncate(first.reply_at);
    out.raw(failed.as_slice());
}
