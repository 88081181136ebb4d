//! A client's followers. However many wait, each commit is read once, and wakes only those whose
//! range it touches.

use std::cmp::Ordering;
use std::ops::Bound;
use std::rc::Rc;

use mangrove_engine::{Change, Changes, Commit, Database, Error, KeyRange, Result, Snapshot};

use crate::feed::Follower;
use crate::filter::Filter;
use crate::protocol::{Reader, Writer};
use crate::range::is_empty;
use crate::table::{MAX_OPEN, Table};

/// Size in bytes at which no further commits for a follower are handed over to another session.
const MAX_PENDING_BYTES: u64 = 1 << 20;
/// The same for all followers of a client together.
const MAX_ALL_PENDING_BYTES: usize = 32 << 20;

/// Followers by id.
#[derive(Default)]
pub(crate) struct Followers {
    table: Table<Follower>,
    /// Reads on behalf of all waiting followers; `None` if there are none.
    scanner: Option<Changes>,
    ranges: Ranges,
    /// Followers without a filter.
    whole: Vec<u64>,
    is_due: bool,
}

impl Followers {
    /// Opens a follower; returns the version after which it reads.
    pub(crate) fn open(
        &mut self,
        database: &Database,
        id: u64,
        since: Option<u64>,
        filter: Option<Filter>,
    ) -> Result<u64> {
        self.table
            .check_room(MAX_OPEN, "open watches; end them with return() or unsubscribe()")?;
        let filter = filter.map(Rc::new);
        let follower = Follower::new(database, since, filter.clone())?;
        let version = follower.version();
        self.close(id);
        match filter {
            Some(filter) => self.ranges.insert(id, filter),
            None => self.whole.push(id),
        }
        self.table.insert(id, follower);
        Ok(version)
    }

    /// Writes the followers, their filters and versions, for [`import`](Self::import). With
    /// `pending`, also writes the commits that they have yet to read, and marks those as read here.
    pub(crate) fn export(&mut self, database: &Database, pending: bool, out: &mut Writer) {
        if pending {
            self.catch_up(database);
        }
        let start = out.position();
        out.uv(self.table.iter().count() as u64);
        let ids: Vec<u64> = self.table.iter().map(|(id, _)| id).collect();
        for id in ids {
            let Some(follower) = self.table.get_mut(id) else {
                continue;
            };
            let mut commits = Writer::default();
            let mut version = follower.version();
            if pending && !follower.is_ready() {
                // None of the commits since then is of interest.
                version = database.version();
            } else if pending
                && out.position() - start < MAX_ALL_PENDING_BYTES
                && follower.next(database, MAX_PENDING_BYTES, &mut commits).is_ok()
            {
                version = follower.version();
            } else {
                commits.truncate(0);
            }
            out.uv(id);
            out.uv(version);
            out.bytes(pulled(&commits));
            out.flag(follower.filter().is_some());
            if let Some(filter) = follower.filter() {
                out.bytes(filter.name.as_bytes());
                out.bytes(filter.key_codec.as_bytes());
                out.bytes(filter.value_codec.as_bytes());
                out.bound(&filter.lower);
                out.bound(&filter.upper);
            }
        }
    }

    /// Adds the followers that [`export`](Self::export) wrote. Those that have read beyond the version
    /// `known` have read what was lost.
    pub(crate) fn import(&mut self, database: &Database, known: Option<u64>, reader: &mut Reader<'_>) -> Result<()> {
        for _ in 0..reader.count()? {
            let (id, version, pending) = (reader.uv()?, reader.uv()?, reader.bytes()?);
            let filter = if reader.flag()? {
                Some(Rc::new(Filter {
                    name: reader.str()?.to_owned(),
                    key_codec: reader.str()?.to_owned(),
                    value_codec: reader.str()?.to_owned(),
                    lower: reader.owned_bound()?,
                    upper: reader.owned_bound()?,
                }))
            } else {
                None
            };
            let follower = Follower::resume(database, version, known, filter.clone(), pending);
            match filter {
                Some(filter) => self.ranges.insert(id, filter),
                None => self.whole.push(id),
            }
            self.table.insert(id, follower);
            self.is_due = true;
        }
        Ok(())
    }

    pub(crate) fn has(&self, id: u64) -> bool {
        self.table.get(id).is_some()
    }

    pub(crate) fn next(&mut self, database: &Database, id: u64, max_bytes: u64, out: &mut Writer) -> Result<()> {
        self.catch_up(database);
        let follower = self.table.get_mut(id).ok_or(Error::Closed)?;
        if let Some(changes) = follower.next(database, max_bytes, out)? {
            self.scanner.get_or_insert(changes);
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, id: u64) {
        self.table.remove(id);
        self.ranges.remove(id);
        self.whole.retain(|&other| other != id);
        if self.table.is_empty() {
            self.scanner = None;
        }
    }

    /// Continues in a refreshed database that was in state `before`.
    pub(crate) fn refresh(&mut self, before: &Snapshot, database: &Database) {
        self.scanner = None;
        for follower in self.table.values_mut() {
            follower.refresh(before, database);
            self.is_due = true;
        }
    }

    /// Whether there is something for a follower that had read everything; true once.
    pub(crate) fn is_due(&mut self, database: &Database) -> bool {
        self.catch_up(database);
        std::mem::take(&mut self.is_due)
    }

    /// Writes the ids of the followers that may have something to read.
    pub(crate) fn ready(&mut self, database: &Database, out: &mut Writer) {
        self.catch_up(database);
        let ready: Vec<u64> = self
            .table
            .iter()
            .filter(|(_, follower)| follower.is_ready())
            .map(|(id, _)| id)
            .collect();
        out.uv(ready.len() as u64);
        for id in ready {
            out.uv(id);
        }
    }

    /// Examines the commits since the last call.
    fn catch_up(&mut self, database: &Database) {
        while let Some(scanner) = self
            .scanner
            .as_mut()
            .filter(|scanner| scanner.version() < database.version())
        {
            let before = scanner.clone();
            match scanner.next_commit() {
                Ok(Some(commit)) => self.wake(&before, &commit),
                Ok(None) => return,
                Err(error) => {
                    self.scanner = None;
                    self.is_due = true;
                    for follower in self.table.values_mut() {
                        follower.fail(&error);
                    }
                }
            }
        }
    }

    fn wake(&mut self, before: &Changes, commit: &Commit) {
        let mut ids = Vec::new();
        if commit
            .changes
            .iter()
            .any(|change| !matches!(change, Change::Create { .. }))
        {
            ids.extend_from_slice(&self.whole);
        }
        for change in &commit.changes {
            self.ranges.find(change, &mut ids);
        }
        for id in ids {
            if let Some(follower) = self.table.get_mut(id) {
                self.is_due |= follower.wake(before, commit.version);
            }
        }
        // The first one that has read everything again brings another scanner.
        if self.is_due && self.table.values_mut().all(|follower| follower.is_ready()) {
            self.scanner = None;
        }
    }
}

/// Returns the commits in a reply of [`Follower::next`].
fn pulled(reply: &Writer) -> &[u8] {
    let mut reader = Reader::new(reply.as_slice());
    let read = reader.flag().and_then(|_| reader.uv()).and_then(|_| reader.bytes());
    read.unwrap_or_default()
}

struct Entry {
    id: u64,
    filter: Rc<Filter>,
    /// Index of the entry that ends last, among the entries of the collection up to this one.
    furthest: usize,
}

/// Ranges sorted by collection and lower bound.
#[derive(Default)]
struct Ranges {
    entries: Vec<Entry>,
}

impl Ranges {
    fn insert(&mut self, id: u64, filter: Rc<Filter>) {
        let order = |entry: &Entry| {
            let names = entry.filter.name.cmp(&filter.name);
            names
                .then_with(|| compare(entry.filter.range().lower, filter.range().lower, Ordering::Less))
                .is_le()
        };
        let at = self.entries.partition_point(order);
        self.entries.insert(
            at,
            Entry {
                id,
                filter,
                furthest: at,
            },
        );
        self.measure(at);
    }

    fn remove(&mut self, id: u64) {
        if let Some(at) = self.entries.iter().position(|entry| entry.id == id) {
            self.entries.remove(at);
            self.measure(at);
        }
    }

    /// Recomputes `furthest` of the entries from `from` on.
    fn measure(&mut self, from: usize) {
        for at in from..self.entries.len() {
            let upper = |at: usize| self.entries[at].filter.range().upper;
            let before = at
                .checked_sub(1)
                .filter(|&before| self.entries[before].filter.name == self.entries[at].filter.name)
                .map(|before| self.entries[before].furthest)
                .filter(|&before| compare(upper(before), upper(at), Ordering::Greater).is_ge());
            self.entries[at].furthest = before.unwrap_or(at);
        }
    }

    /// Appends the ids of the ranges that the change touches.
    fn find(&self, change: &Change, ids: &mut Vec<u64>) {
        let whole = (Bound::Unbounded, Bound::Unbounded);
        match change {
            Change::Set { collection, key, .. } | Change::Delete { collection, key, .. } => {
                self.find_in(collection, (Bound::Included(key), Bound::Included(key)), change, ids);
            }
            Change::Clear {
                collection,
                lower,
                upper,
            } => {
                let range = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
                self.find_in(collection, range, change, ids);
            }
            Change::Drop { collection } | Change::Codecs { collection, .. } => {
                self.find_in(collection, whole, change, ids);
            }
            Change::Rename { from, to } => {
                for name in [from, to] {
                    self.find_in(name, whole, change, ids);
                }
            }
            _ => {}
        }
    }

    fn find_in(&self, name: &str, (lower, upper): (Bound<&[u8]>, Bound<&[u8]>), change: &Change, ids: &mut Vec<u64>) {
        let ends_before = |from: Bound<&[u8]>, to: Bound<&[u8]>| is_empty(&KeyRange { lower: from, upper: to });
        let end = self
            .entries
            .partition_point(|entry| match (*entry.filter.name).cmp(name) {
                Ordering::Equal => !ends_before(entry.filter.range().lower, upper),
                order => order.is_lt(),
            });
        for entry in self.entries[..end].iter().rev() {
            if entry.filter.name != name || ends_before(lower, self.entries[entry.furthest].filter.range().upper) {
                break;
            }
            // A follower that the change makes fail is woken too.
            if !matches!(entry.filter.touches(change), Ok(false)) {
                ids.push(entry.id);
            }
        }
    }
}

/// Compares two lower bounds or two upper bounds; `none` is how an unbounded one compares to
/// others.
fn compare(a: Bound<&[u8]>, b: Bound<&[u8]>, none: Ordering) -> Ordering {
    // An exclusive lower bound comes after the inclusive one, an exclusive upper bound before it.
    let rank = |bound: Bound<&[u8]>| match bound {
        Bound::Included(_) => 0,
        Bound::Excluded(_) => 1,
        Bound::Unbounded => 2,
    };
    let key = |bound| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    };
    match (key(a), key(b)) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => none,
        (Some(_), None) => none.reverse(),
        (Some(x), Some(y)) => {
            let ranks = rank(a).cmp(&rank(b));
            x.cmp(y).then(if none.is_lt() { ranks } else { ranks.reverse() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Vec<Bound<Vec<u8>>> {
        let mut bounds = vec![Bound::Unbounded];
        bounds.extend((0..4).flat_map(|byte| [Bound::Included(vec![byte]), Bound::Excluded(vec![byte])]));
        bounds
    }

    fn filter(name: &str, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> Rc<Filter> {
        Rc::new(Filter {
            name: name.to_owned(),
            key_codec: "any".to_owned(),
            value_codec: "any".to_owned(),
            lower: lower.clone(),
            upper: upper.clone(),
        })
    }

    #[test]
    fn interested_followers_are_found_among_any_ranges() {
        let mut filters = Vec::new();
        for name in ["b", "a", "c"] {
            for lower in &bounds() {
                filters.extend(bounds().iter().map(|upper| filter(name, lower, upper)));
            }
        }
        let collection = || "b".to_owned();
        let mut changes: Vec<Change> = (0..5)
            .flat_map(|byte| [vec![byte], vec![byte, 7]])
            .map(|key| Change::Delete {
                collection: collection(),
                key,
                expired: false,
            })
            .collect();
        for lower in bounds() {
            changes.extend(bounds().into_iter().map(|upper| Change::Clear {
                collection: collection(),
                lower: lower.clone(),
                upper,
            }));
        }
        changes.push(Change::Drop {
            collection: collection(),
        });
        changes.push(Change::Rename {
            from: collection(),
            to: "c".to_owned(),
        });
        changes.push(Change::Drop {
            collection: "none".to_owned(),
        });
        // Few and many ranges, inserted out of order, some of them removed again.
        for step in [1, 7, 50] {
            let mut ranges = Ranges::default();
            let chosen: Vec<(u64, &Rc<Filter>)> = (0..).zip(filters.iter().rev().step_by(step)).collect();
            for (id, filter) in &chosen {
                ranges.insert(*id, Rc::clone(filter));
            }
            for id in chosen.iter().map(|(id, _)| *id).filter(|id| id % 3 == 0) {
                ranges.remove(id);
            }
            for change in &changes {
                let mut found = Vec::new();
                ranges.find(change, &mut found);
                found.sort_unstable();
                found.dedup();
                let expected: Vec<u64> = chosen
                    .iter()
                    .filter(|(id, filter)| id % 3 != 0 && filter.touches(change).unwrap())
                    .map(|(id, _)| *id)
                    .collect();
                assert_eq!(found, expected, "{change:?}");
            }
        }
    }
}
