//! A client that follows the commits: which of them it is told, and in what form.

use std::ops::Bound;

use mangrove_engine::{Change, Changes, Commit, Database, Error, KeyRange, Result};

use crate::protocol::Writer;
use crate::range;

/// Commits that one request looks at, so that many of no interest keep nobody waiting.
const MAX_COMMITS: usize = 1024;

const SET: u8 = 1;
const DELETE: u8 = 2;
const CLEAR: u8 = 3;
const CODECS: u8 = 4;
const DROP: u8 = 5;
const RENAME: u8 = 6;

/// The part of one collection that is of interest.
pub(crate) struct Filter {
    pub(crate) name: String,
    pub(crate) key_codec: String,
    pub(crate) value_codec: String,
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

impl Filter {
    fn range(&self) -> KeyRange<'_> {
        KeyRange {
            lower: self.lower.as_ref().map(Vec::as_slice),
            upper: self.upper.as_ref().map(Vec::as_slice),
        }
    }

    /// Whether the change touches the range; fails where what follows cannot be understood with the codecs.
    fn touches(&self, change: &Change) -> Result<bool> {
        Ok(match change {
            Change::Set { collection, key, .. } | Change::Delete { collection, key } => {
                *collection == self.name && range::contains(&self.range(), key)
            }
            Change::Clear {
                collection,
                lower,
                upper,
            } => *collection == self.name && range::overlap(&self.range(), lower, upper),
            Change::Drop { collection } => *collection == self.name,
            Change::Rename { from, to } => *from == self.name || *to == self.name,
            Change::Codecs {
                collection,
                key_codec,
                value_codec,
            } => {
                if *collection == self.name && (*key_codec != self.key_codec || *value_codec != self.value_codec) {
                    return Err(Error::CodecMismatch {
                        collection: self.name.as_str().into(),
                        stored: [key_codec, "/", value_codec].concat().into(),
                        requested: [self.key_codec.as_str(), "/", &self.value_codec].concat().into(),
                    });
                }
                false
            }
            _ => false,
        })
    }
}

/// What a client follows.
pub(crate) struct Follower {
    changes: Changes,
    filter: Option<Filter>,
    /// Found after commits that could still be sent.
    failed: Option<Error>,
}

impl Follower {
    pub(crate) fn new(database: &Database, since: Option<u64>, filter: Option<Filter>) -> Result<Self> {
        Ok(Self {
            changes: database.changes(since)?,
            filter,
            failed: None,
        })
    }

    /// Version of the last commit that was passed.
    pub(crate) fn version(&self) -> u64 {
        self.changes.version()
    }

    /// Writes whether nothing is left for now, the version that was reached, and the next commits as one byte string.
    pub(crate) fn next(&mut self, max_bytes: u64, out: &mut Writer) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut commits = Writer::default();
        let mut names = Names::default();
        let mut is_done = false;
        for _ in 0..MAX_COMMITS {
            if commits.position() as u64 >= max_bytes {
                break;
            }
            match self.next_of_interest() {
                Ok(Some(commit)) => write(&commit, &mut names, &mut commits),
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
        out.flag(is_done);
        out.uv(self.version());
        out.bytes(commits.as_slice());
        Ok(())
    }

    /// The next commit, without the changes that are of no interest.
    fn next_of_interest(&mut self) -> Result<Option<Commit>> {
        let Some(mut commit) = self.changes.next_commit()? else {
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

/// Names are written once: a number one past those before introduces the next.
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

fn write(commit: &Commit, names: &mut Names, out: &mut Writer) {
    if commit.changes.is_empty() {
        return;
    }
    out.uv(commit.version);
    out.uv(commit.changes.len() as u64);
    for change in &commit.changes {
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
            Change::Delete { collection, key } => {
                names.write(collection, out);
                out.bytes(key);
                DELETE
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
