//! A follower: which commits it is sent, and in what form.

use std::rc::Rc;

use mangrove_engine::{Change, Changes, Commit, Database, Error, Result, Snapshot};

use crate::difference::difference;
use crate::filter::Filter;
use crate::protocol::Writer;

/// Limit on the commits that one request examines, so that a run of irrelevant ones does not delay
/// other requests.
const MAX_COMMITS: usize = 1024;

const SET: u8 = 1;
const DELETE: u8 = 2;
const CLEAR: u8 = 3;
const CODECS: u8 = 4;
const DROP: u8 = 5;
const RENAME: u8 = 6;
const EXPIRE: u8 = 7;

/// Read position of a follower.
enum Position {
    /// The follower reads commits itself.
    Reading(Changes),
    /// The follower has everything up to this version or a later one. The scanner of
    /// [`Followers`](crate::followers::Followers) looks for the next commit of interest.
    Waiting(u64),
}

/// A client's iterator over commits.
pub(crate) struct Follower {
    position: Position,
    filter: Option<Rc<Filter>>,
    /// Error to report after commits that can still be sent.
    failed: Option<Error>,
    /// Commits handed over by an earlier session, with the version that they reach.
    pending: Option<(u64, Vec<u8>)>,
    /// State that the follower has seen, if the commits between it and a refreshed database are not
    /// kept.
    behind: Option<Snapshot>,
}

impl Follower {
    pub(crate) fn new(database: &Database, since: Option<u64>, filter: Option<Rc<Filter>>) -> Result<Self> {
        Ok(Self {
            position: Position::Reading(database.changes(since)?),
            filter,
            failed: None,
            pending: None,
            behind: None,
        })
    }

    /// Continues a follower of an earlier session. If commits are missing, or if it has read beyond
    /// the version `known`, reading from it fails.
    pub(crate) fn resume(
        database: &Database,
        since: u64,
        known: Option<u64>,
        filter: Option<Rc<Filter>>,
        pending: &[u8],
    ) -> Self {
        let resumed = match known {
            Some(known) if since > known => Err(Error::TruncatedFeed { horizon: known.into() }),
            _ => database.changes(Some(since)),
        };
        let (position, failed) = match resumed {
            Ok(changes) => (Position::Reading(changes), None),
            Err(error) => (Position::Waiting(since), Some(error)),
        };
        Self {
            position,
            filter,
            failed,
            pending: (!pending.is_empty()).then(|| (since, pending.to_vec())),
            behind: None,
        }
    }

    /// Continues in a refreshed database that was in state `before`: with the commits since, if
    /// they are kept, otherwise with their combined changes as one commit. A follower that had not
    /// read everything up to `before` has no state to compare with, and fails.
    pub(crate) fn refresh(&mut self, before: &Snapshot, database: &Database) {
        if self.behind.is_some() {
            return;
        }
        match (database.changes(Some(self.version())), &self.position) {
            (Ok(changes), _) => self.position = Position::Reading(changes),
            (Err(error), Position::Reading(unread)) if unread.version() < before.version() => self.failed = Some(error),
            (Err(_), _) => self.behind = Some(before.clone()),
        }
    }

    pub(crate) fn filter(&self) -> Option<&Filter> {
        self.filter.as_deref()
    }

    /// Returns the version of the last commit that was read or skipped.
    pub(crate) fn version(&self) -> u64 {
        match &self.position {
            Position::Reading(changes) => changes.version(),
            Position::Waiting(version) => *version,
        }
    }

    /// Whether there may be something to read.
    pub(crate) fn is_ready(&self) -> bool {
        self.failed.is_some()
            || self.pending.is_some()
            || self.behind.is_some()
            || matches!(self.position, Position::Reading(_))
    }

    /// Lets a waiting follower read on from `before`, which precedes a commit of interest. Returns
    /// whether the follower was waiting for that commit.
    pub(crate) fn wake(&mut self, before: &Changes, version: u64) -> bool {
        let waited = matches!(self.position, Position::Waiting(seen) if seen < version);
        if waited {
            self.position = Position::Reading(before.clone());
        }
        waited
    }

    /// Makes a waiting follower report an error.
    pub(crate) fn fail(&mut self, error: &Error) {
        if matches!(self.position, Position::Waiting(_)) {
            self.failed = Some(error.clone());
        }
    }

    /// Writes whether everything has been read, the version reached, and the next commits as one
    /// byte string. Once everything has been read, the version is at least the database's, also where
    /// the newest commits have no changes.
    ///
    /// A follower that has read everything starts waiting and returns the `Changes` that it read
    /// with.
    pub(crate) fn next(&mut self, database: &Database, max_bytes: u64, out: &mut Writer) -> Result<Option<Changes>> {
        if let Some((version, commits)) = self.pending.take() {
            out.flag(false);
            out.uv(version);
            out.bytes(&commits);
            return Ok(None);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let newest = database.version();
        let mut commits = Writer::default();
        let mut names = Names::default();
        let mut is_done = false;
        if let Some(before) = self.behind.take() {
            let now = database.snapshot();
            self.position = Position::Waiting(now.version());
            let mut changes = Vec::new();
            difference(&before, &now, self.filter(), |change| changes.push(change))?;
            write(now.version(), &changes, &mut names, &mut commits);
            is_done = true;
        }
        for _ in 0..MAX_COMMITS {
            if is_done || commits.position() as u64 >= max_bytes {
                break;
            }
            match self.next_of_interest() {
                Ok(Some(commit)) => write(commit.version, &commit.changes, &mut names, &mut commits),
                Ok(None) => {
                    is_done = true;
                    break;
                }
                Err(error) if commits.position() == 0 => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        let version = if is_done {
            self.version().max(newest)
        } else {
            self.version()
        };
        out.flag(is_done);
        out.uv(version);
        out.bytes(commits.as_slice());
        if is_done && let Position::Reading(changes) = std::mem::replace(&mut self.position, Position::Waiting(version))
        {
            return Ok(Some(changes));
        }
        Ok(None)
    }

    /// Returns the next commit without its irrelevant changes.
    fn next_of_interest(&mut self) -> Result<Option<Commit>> {
        let Position::Reading(changes) = &mut self.position else {
            return Ok(None);
        };
        let Some(mut commit) = changes.next_commit()? else {
            return Ok(None);
        };
        let mut failed = None;
        commit.changes.retain(|change| match &self.filter {
            None => !matches!(change, Change::Create { .. }),
            Some(filter) => filter.touches(change).unwrap_or_else(|error| {
                failed.get_or_insert(error);
                false
            }),
        });
        failed.map_or(Ok(Some(commit)), Err)
    }
}

/// Each name is written once: the lowest unused index introduces a new one.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn write(&mut self, name: &str, out: &mut Writer) {
        let known = self.0.iter().position(|known| known == name);
        out.uv(known.unwrap_or(self.0.len()) as u64);
        if known.is_none() {
            out.bytes(name.as_bytes());
            self.0.push(name.to_owned());
        }
    }
}

fn write(version: u64, changes: &[Change], names: &mut Names, out: &mut Writer) {
    if changes.is_empty() {
        return;
    }
    out.uv(version);
    out.uv(changes.len() as u64);
    for change in changes {
        let kind_at = out.position();
        out.raw(&[0]);
        let kind = match change {
            Change::Set {
                collection,
                key,
                value,
                expires_at,
            } => {
                names.write(collection, out);
                out.bytes(key);
                out.bytes(value);
                out.uv(expires_at.unwrap_or(0));
                SET
            }
            Change::Delete {
                collection,
                key,
                expired,
            } => {
                names.write(collection, out);
                out.bytes(key);
                if *expired { EXPIRE } else { DELETE }
            }
            Change::Clear {
                collection,
                lower,
                upper,
            } => {
                names.write(collection, out);
                out.bound(lower);
                out.bound(upper);
                CLEAR
            }
            Change::Codecs {
                collection,
                key_codec,
                value_codec,
            } => {
                names.write(collection, out);
                out.bytes(key_codec.as_bytes());
                out.bytes(value_codec.as_bytes());
                CODECS
            }
            Change::Drop { collection } => {
                names.write(collection, out);
                DROP
            }
            Change::Rename { from, to } => {
                names.write(from, out);
                out.bytes(to.as_bytes());
                RENAME
            }
            // Kinds that the client does not know.
            _ => {
                names.write("", out);
                0
            }
        };
        out.patch_byte(kind_at, kind);
    }
}
