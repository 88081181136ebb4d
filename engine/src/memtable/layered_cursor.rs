//! A cursor over a collection's layers: merges its tree and up to three memtables.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Gaps, Layers, MemtableCursor, Records};
use crate::error::Result;
use crate::node::{Child, LeafCell, Node};
use crate::range::{Direction, KeyRange};
use crate::tree::Pages;
use crate::tree::cursor::TreeCursor;

/// Number of removed or expired records that a step passes one by one. Then it remembers that there
/// is a gap, and behind removed ones it looks up the next record by its position.
pub(crate) const MAX_PASSED: usize = if IS_SMALL { 3 } else { 64 };
/// Number of those behind a known gap that are worth remembering.
const MIN_GROWTH: usize = if IS_SMALL { 2 } else { 8 };
/// A step looks for a gap each time that it has passed so many.
const LOOK_EVERY: usize = if IS_SMALL { 2 } else { 16 };
/// Small collections of tests have gaps, too.
const IS_SMALL: bool = cfg!(any(test, feature = "testing"));

/// Where the current record is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Current {
    /// Before the first step, or after the last.
    Nowhere,
    Tree,
    /// In the memtable with this index.
    Memory(usize),
}

/// The least key of the memtables, in the cursor's direction.
#[derive(Clone, Copy)]
struct Least {
    /// The newest memtable that has it.
    index: usize,
    /// A bit for each memtable that has it.
    all: u8,
}

/// Removed and expired records that a step has passed.
#[derive(Default)]
struct Passed {
    first: Vec<u8>,
    last: Vec<u8>,
    /// When the last of them expired.
    expired_at: u64,
    /// Number of those passed one by one, and of those behind the last known gap.
    count: usize,
    /// Whether it passed a known gap.
    is_known: bool,
}

impl Passed {
    fn add(&mut self, key: &[u8], expires: u64) {
        if self.count == 0 && !self.is_known {
            self.first = key.to_vec();
        }
        key.clone_into(&mut self.last);
        self.count += 1;
        self.expired_at = self.expired_at.max(expires);
    }

    /// Adds all that a known gap holds.
    fn jump(&mut self, end: Vec<u8>, expired_at: u64) {
        self.last = end;
        self.expired_at = self.expired_at.max(expired_at);
        self.count = 0;
        self.is_known = true;
    }

    /// Adds the gap that was passed to those that are known, if that pays.
    fn remember(self, gaps: Option<&Gaps>) {
        let pays = self.count >= MAX_PASSED || self.is_known && self.count >= MIN_GROWTH;
        if let Some(gaps) = gaps.filter(|_| pays) {
            gaps.add(self.first, self.last, self.expired_at);
        }
    }
}

/// Where a step ends.
enum Step {
    Record,
    /// At an entry of the memtables without a record.
    Removed,
    End,
}

/// Moves over the records of a range in one version. Every call must pass the same records, or the
/// same pages.
pub(crate) struct LayeredCursor {
    tree: TreeCursor,
    /// Whether the tree's cursor stands on a record that was not returned yet.
    is_ahead: bool,
    is_tree_done: bool,
    /// Number of further records in the tree's leaf before the least key of the memtables.
    run: usize,
    /// Cursors over the memtables that have entries, newest first. Those with the current key stand
    /// on it.
    memory: Vec<MemtableCursor>,
    least: Option<Least>,
    /// A bit for each memtable whose current entry is done and has to be stepped over.
    passed: u8,
    direction: Direction,
    current: Current,
}

impl LayeredCursor {
    pub(crate) fn new(
        root: Option<Child>,
        owner: u32,
        layers: &Layers,
        range: &KeyRange<'_>,
        direction: Direction,
    ) -> Self {
        let memtables = layers.all().into_iter();
        let mut cursor = Self {
            tree: TreeCursor::new(root, owner, range, direction),
            is_ahead: false,
            is_tree_done: false,
            run: 0,
            memory: memtables
                .filter(|memtable| !memtable.is_empty())
                .map(|memtable| MemtableCursor::new(memtable, range, direction))
                .collect(),
            least: None,
            passed: 0,
            direction,
            current: Current::Nowhere,
        };
        cursor.find_least();
        cursor
    }

    /// Spares the cursor the lookup of the root in the page table.
    pub(crate) fn with_root(mut self, node: Option<&Arc<Node>>) -> Self {
        self.tree = self.tree.with_root(node);
        self
    }

    /// Payload of the current record, if it is in a memtable.
    fn payload(&self) -> Option<&[u8]> {
        match self.current {
            Current::Memory(index) => self.memory[index].entry()?.payload,
            _ => None,
        }
    }

    /// Key of the current record; after the end, the key of the tree's last record.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self.current {
            Current::Memory(index) => self.memory[index].entry().map_or(&[], |entry| entry.key),
            _ => self.tree.key(),
        }
    }

    /// The current record; `None` before the first step and after the last.
    pub(crate) fn record(&self) -> Option<LeafCell<'_>> {
        match self.current {
            Current::Nowhere => None,
            Current::Tree => self.tree.record(),
            Current::Memory(_) => self.payload().map(LeafCell::decode),
        }
    }

    /// Value of the current record; `None` if it is out of line or there is no record.
    #[inline]
    pub(crate) fn inline_value(&self) -> Option<&[u8]> {
        match self.current {
            Current::Nowhere => None,
            Current::Tree => self.tree.inline_value(),
            Current::Memory(_) => Node::inline_value_of(self.payload()?),
        }
    }

    /// The most common step: from one record of a leaf to another, with no memtable entry between
    /// them. `false`, with nothing changed, if the step is of another kind.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "each record of a scan runs through it, and WebAssembly inlines less"
    )]
    pub(crate) fn step_inside(&mut self) -> bool {
        if self.least.is_none() {
            // The last entry of the memtables may be the current record.
            return self.passed == 0 && !self.is_ahead && self.tree.step_inside();
        }
        if self.run > 0 && self.tree.step_inside() {
            self.run -= 1;
            return true;
        }
        false
    }

    /// Moves to the next record of the range; `false` at its end. O(log n) on average. Over entries
    /// that were removed and are not merged yet, O(log n log m) the first time; over `e` expired
    /// records that are not purged yet, O(e) the first time.
    pub(crate) fn advance<P: Pages>(&mut self, records: &Records<'_, P>) -> Result<bool> {
        let mut passed = Passed::default();
        loop {
            let expires = match self.step(records)? {
                Step::Removed => 0,
                Step::Record => match self.expired(records.now) {
                    0 => {
                        passed.remember(records.gaps);
                        return Ok(true);
                    }
                    expires => expires,
                },
                Step::End => {
                    passed.remember(records.gaps);
                    return Ok(false);
                }
            };
            self.pass(records, &mut passed, expires)?;
        }
    }

    /// When the current record expired; 0 if it had not by `now`.
    fn expired(&self, now: u64) -> u64 {
        if now == 0 {
            return 0;
        }
        let record = self.record().filter(|record| record.is_expired(now));
        record.map_or(0, |record| record.expires)
    }

    /// Moves to the next record or removed entry.
    fn step<P: Pages>(&mut self, records: &Records<'_, P>) -> Result<Step> {
        self.run = 0;
        if self.passed != 0 {
            self.step_memory();
        }
        if !self.is_ahead && !self.is_tree_done {
            self.is_ahead = self.tree.advance(records.pages)?;
            self.is_tree_done = !self.is_ahead;
        }
        let Some(least) = self.least else {
            let was_ahead = std::mem::take(&mut self.is_ahead);
            self.current = if was_ahead { Current::Tree } else { Current::Nowhere };
            return Ok(if was_ahead { Step::Record } else { Step::End });
        };
        let Some(entry) = self.memory[least.index].entry() else {
            return Ok(Step::End);
        };
        if self.is_ahead {
            match in_direction(self.direction, self.tree.key(), entry.key) {
                Ordering::Less => {
                    if self.current == Current::Tree {
                        self.run = self.tree.steps_before(entry.key);
                    }
                    self.current = Current::Tree;
                    self.is_ahead = false;
                    return Ok(Step::Record);
                }
                Ordering::Equal => self.is_ahead = false,
                Ordering::Greater => {}
            }
        }
        self.passed = least.all;
        if entry.payload.is_none() {
            return Ok(Step::Removed);
        }
        self.current = Current::Memory(least.index);
        Ok(Step::Record)
    }

    /// Leaves the removed entry, or the record that expired at `expires`, to which the last step
    /// moved; with it a known gap, or more removed entries.
    #[cold]
    fn pass<P: Pages>(&mut self, records: &Records<'_, P>, passed: &mut Passed, expires: u64) -> Result<()> {
        let removed = self.least.and_then(|least| self.memory[least.index].entry());
        let key = match removed {
            Some(entry) if expires == 0 => entry.key,
            _ => self.key(),
        };
        passed.add(key, expires);
        if passed.count == 2 || passed.count.is_multiple_of(LOOK_EVERY) {
            let gap = records.gaps.and_then(|gaps| gaps.end(key, self.direction, records.now));
            if let Some((end, expired_at)) = gap {
                self.seek(records.pages, &end)?;
                passed.jump(end, expired_at);
                return Ok(());
            }
        }
        if expires == 0 && passed.count.is_multiple_of(MAX_PASSED) {
            // A shortcut: where it cannot read a page nothing has moved, and the steps go on.
            if let Ok(Some(next)) = self.pass_removed(records) {
                passed.last = next;
            }
        }
        Ok(())
    }

    /// Moves from a removed entry to just before the next record, and returns its key. Positions
    /// count records only, so that one is where the entry would be.
    fn pass_removed<P: Pages>(&mut self, records: &Records<'_, P>) -> Result<Option<Vec<u8>>> {
        let removed = self.least.and_then(|least| self.memory[least.index].entry());
        let Some(removed) = removed else { return Ok(None) };
        let here = records.rank(removed.key)?;
        let next = match self.direction {
            Direction::Forward => Some(here),
            Direction::Reverse => here.checked_sub(1),
        };
        self.go_to(records, next)
    }

    /// Steps over the entries marked in `passed`.
    fn step_memory(&mut self) {
        let passed = std::mem::take(&mut self.passed);
        for (index, cursor) in self.memory.iter_mut().enumerate() {
            if passed & (1 << index) != 0 {
                cursor.step();
            }
        }
        self.find_least();
    }

    fn find_least(&mut self) {
        let mut least: Option<(Least, &[u8])> = None;
        for (index, cursor) in self.memory.iter().enumerate() {
            let Some(entry) = cursor.entry() else { continue };
            let bit = 1 << index;
            match &mut least {
                Some((found, key)) => match in_direction(self.direction, entry.key, key) {
                    Ordering::Less => least = Some((Least { index, all: bit }, entry.key)),
                    Ordering::Equal => found.all |= bit,
                    Ordering::Greater => {}
                },
                None => least = Some((Least { index, all: bit }, entry.key)),
            }
        }
        self.least = least.map(|(least, _)| least);
    }

    /// Makes the next step return the first record at or past `key` in the cursor's direction,
    /// inside the range.
    pub(crate) fn seek(&mut self, pages: &impl Pages, key: &[u8]) -> Result<()> {
        self.tree.seek(pages, key)?;
        for cursor in &mut self.memory {
            cursor.seek(key);
        }
        self.restart(false);
        Ok(())
    }

    /// Resets the state after all parts of the cursor were moved.
    fn restart(&mut self, is_tree_done: bool) {
        self.is_ahead = false;
        self.is_tree_done = is_tree_done;
        self.run = 0;
        self.passed = 0;
        self.current = Current::Nowhere;
        self.find_least();
    }

    /// Skips the next `count` records. O(log n) if the memtables are empty, otherwise
    /// O(log n log m).
    pub(crate) fn skip<P: Pages>(&mut self, records: &Records<'_, P>, count: u64) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        if self.memory.is_empty() {
            return self.tree.skip(records.pages, count);
        }
        let (from, to) = records.positions(&self.tree.range())?;
        let here = match self.current {
            Current::Nowhere => None,
            _ => Some(records.rank(self.key())?),
        };
        let next = match self.direction {
            Direction::Forward => here
                .map_or(from, |here| here + 1)
                .checked_add(count)
                .filter(|next| *next < to),
            Direction::Reverse => here.unwrap_or(to).checked_sub(count + 1).filter(|next| *next >= from),
        };
        self.go_to(records, next)?;
        Ok(())
    }

    /// Makes the next step return the record at a position, if that lies inside the range; without
    /// one, ends. Returns the record's key.
    fn go_to<P: Pages>(&mut self, records: &Records<'_, P>, position: Option<u64>) -> Result<Option<Vec<u8>>> {
        let target = position.map(|position| records.at(position)).transpose()?.flatten();
        let Some((key, _)) = target else {
            self.memory.iter_mut().for_each(MemtableCursor::finish);
            self.restart(true);
            return Ok(None);
        };
        self.seek(records.pages, &key)?;
        Ok(Some(key))
    }
}

fn in_direction(direction: Direction, a: &[u8], b: &[u8]) -> Ordering {
    match direction {
        Direction::Forward => a.cmp(b),
        Direction::Reverse => b.cmp(a),
    }
}
