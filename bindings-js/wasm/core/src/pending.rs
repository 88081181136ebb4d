//! The engine's transaction behind a group of writes.

use std::ops::Range;

use mangrove_engine::{
    CommitInfo, Database, Durability, ExclusiveTransaction, OptimisticTransaction, Result, Snapshot, Submission,
};

use crate::client::{Client, Outcome};
use crate::protocol::Writer;

/// What is kept for absent clients.
#[derive(Default)]
pub(crate) struct Kept {
    /// State of the database when inheritance began, while clients may resume from it.
    pub(crate) inherited: Option<Snapshot>,
    /// A random number of this opening of the database, 0 where no client resumes.
    pub(crate) opening: u64,
    /// Version of the database when inheritance began. Later versions that clients have seen in another
    /// opening are of commits that were lost with it, and are given again here.
    pub(crate) opened_at: u64,
    /// Clients that are gone; the next commit removes what is stored for them.
    pub(crate) to_forget: Vec<Vec<u8>>,
}

/// Who flushes what a message commits durably.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushing {
    /// The engine, before it goes on.
    Here,
    /// The host, while the message waits.
    Awaited,
    /// The host, before it delivers the reply: only the message's last commits can be left to it, as
    /// requests after them would not see them.
    Owed,
}

/// The engine's transaction behind a group, begun by its first write.
pub(crate) struct Writes<'d> {
    pub(crate) database: &'d Database,
    transaction: Option<ExclusiveTransaction<'d>>,
    durability: Durability,
    /// The current request was answered from the open transaction.
    pub(crate) were_seen: bool,
    flushing: Flushing,
    /// Commits do wait for one.
    pub(crate) awaits_flush: bool,
    /// The client that writes.
    pub(crate) client: &'d mut Client,
    kept: &'d mut Kept,
    /// Place of the current request in the message.
    pub(crate) place: Range<usize>,
}

impl<'d> Writes<'d> {
    pub(crate) fn new(database: &'d Database, client: &'d mut Client, kept: &'d mut Kept, flushing: Flushing) -> Self {
        Self {
            client,
            kept,
            place: 0..0,
            database,
            transaction: None,
            durability: Durability::None,
            were_seen: false,
            flushing,
            awaits_flush: false,
        }
    }

    /// Whether there are uncommitted writes.
    pub(crate) fn is_open(&self) -> bool {
        self.transaction.is_some()
    }

    /// Returns the open transaction for a lookup, and notes that the request saw it.
    pub(crate) fn seen(&mut self) -> Option<&ExclusiveTransaction<'d>> {
        self.were_seen = self.transaction.is_some();
        self.transaction.as_ref()
    }

    /// Makes one commit of the group. If `work` fails after making some of its changes, the whole
    /// group fails.
    pub(crate) fn commit<T>(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&mut ExclusiveTransaction<'d>) -> Result<T>,
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

    /// Gives up the inherited state, from which clients can then no longer resume, because the
    /// space that it holds is needed.
    pub(crate) fn end_inheritance(&mut self) {
        self.kept.inherited = None;
    }

    /// Commits the group, or undoes it.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let durability = std::mem::replace(&mut self.durability, Durability::None);
        let Some(mut transaction) = self.transaction.take() else {
            return Ok(());
        };
        note(&mut transaction, self.client, self.kept)?;
        let submission = submit(transaction, durability, self.flushing)?;
        self.awaits_flush = submission.awaits_flush;
        Ok(())
    }

    /// Commits a transaction that is not part of the group.
    /// `result`, if any, follows the version in the reply.
    pub(crate) fn commit_other(
        &mut self,
        durability: Durability,
        transaction: OptimisticTransaction,
        result: Option<u64>,
    ) -> Result<CommitInfo> {
        let mark = self.client.mark();
        let (at, len, flushing) = (self.place.start, self.place.len(), self.flushing);
        let (client, kept) = (&mut *self.client, &mut *self.kept);
        let submission = transaction.commit_by(|mut transaction| {
            let mut reply = Writer::default();
            reply.begin();
            reply.uv(transaction.seal().version);
            if let Some(result) = result {
                reply.uv(result);
            }
            if client.is_remembered() {
                client.push(Outcome {
                    at,
                    len,
                    reply: reply.into_bytes(),
                });
            }
            note(&mut transaction, client, kept)?;
            submit(transaction, durability, flushing)
        });
        if submission.is_err() {
            self.client.undo_to(mark);
        }
        let submission = submission?;
        self.awaits_flush = submission.awaits_flush;
        Ok(submission.info)
    }
}

/// Stores the client's outcomes with the commit, and removes those of clients that are gone.
fn note(transaction: &mut ExclusiveTransaction<'_>, client: &Client, kept: &mut Kept) -> Result<()> {
    if client.is_remembered() {
        transaction.remember_client(client.name(), &client.encode())?;
    }
    while let Some(gone) = kept.to_forget.pop() {
        transaction.forget_client(&gone)?;
    }
    Ok(())
}

fn submit(transaction: ExclusiveTransaction<'_>, durability: Durability, flushing: Flushing) -> Result<Submission> {
    if flushing != Flushing::Here {
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
