//! The entries of several layers, as changes to the tree below them.

use super::cells::head;
use super::run::Run;
use super::{Entry, Memtable, MemtableCursor};
use crate::tree::merge::{Change, Changes};

impl<'m> From<Entry<'m>> for Change<'m> {
    fn from(entry: Entry<'m>) -> Self {
        Self {
            key: entry.key,
            payload: entry.payload,
            is_known: entry.below.get(),
        }
    }
}

enum Entries {
    Nodes(MemtableCursor),
    Run { run: Run, next: usize },
}

impl Entries {
    fn peek(&self) -> Option<Change<'_>> {
        match self {
            Self::Nodes(cursor) => cursor.entry().map(Change::from),
            Self::Run { run, next } => run.entry(*next).map(|(key, payload)| Change {
                key,
                payload,
                is_known: None,
            }),
        }
    }

    fn step(&mut self) {
        match self {
            Self::Nodes(cursor) => cursor.step(),
            Self::Run { next, .. } => *next += 1,
        }
    }
}

/// One layer, or a part of one, with the head of its next key.
struct Source {
    entries: Entries,
    head: u64,
}

/// The changes of all sources in key order; for each key, the newest source's change.
pub(crate) struct MergedChanges {
    /// Oldest first; exhausted sources are removed.
    sources: Vec<Source>,
    /// Index of the newest source with the smallest key.
    first: usize,
}

impl MergedChanges {
    /// Merges the changes of memtables, given oldest first.
    pub(crate) fn new(memtables: impl IntoIterator<Item = Memtable>) -> Self {
        let mut changes = Self {
            sources: Vec::new(),
            first: 0,
        };
        for mut memtable in memtables {
            memtable.adopt_merged();
            let cursor = MemtableCursor::over(memtable.nodes.clone());
            changes.add(Entries::Nodes(cursor));
            for run in memtable.into_runs() {
                changes.add(Entries::Run { run, next: 0 });
            }
        }
        changes.choose();
        changes
    }

    fn add(&mut self, entries: Entries) {
        let Some(head) = entries.peek().map(|change| head(change.key, 0)) else {
            return;
        };
        self.sources.push(Source { entries, head });
    }

    /// Moves past a change of a source; `false` if it was the source's last one, which removes the
    /// source.
    fn step_source(&mut self, index: usize) -> bool {
        let source = &mut self.sources[index];
        source.entries.step();
        let next = source.entries.peek().map(|change| head(change.key, 0));
        match next {
            Some(head) => source.head = head,
            None => drop(self.sources.remove(index)),
        }
        next.is_some()
    }

    fn choose(&mut self) {
        let mut first = 0;
        for (index, source) in self.sources.iter().enumerate().skip(1) {
            let other = &self.sources[first];
            if source.head < other.head || (source.head == other.head && key(source) <= key(other)) {
                first = index;
            }
        }
        self.first = first;
    }
}

fn key(source: &Source) -> Option<&[u8]> {
    source.entries.peek().map(|change| change.key)
}

impl Changes for MergedChanges {
    fn peek(&self) -> Option<Change<'_>> {
        let mut change = self.sources.get(self.first)?.entries.peek()?;
        // What the oldest entry knows is about the tree.
        let older = self.sources[..self.first]
            .iter()
            .filter(|source| source.head == self.sources[self.first].head);
        let mut same = older
            .filter_map(|source| source.entries.peek())
            .filter(|older| older.key == change.key);
        if let Some(oldest) = same.next() {
            change.is_known = oldest.is_known;
        }
        Some(change)
    }

    fn step(&mut self) {
        if self.first == self.sources.len() {
            return;
        }
        for index in (0..self.first).rev() {
            let (older, newest) = (&self.sources[index], &self.sources[self.first]);
            if older.head == newest.head && key(older) == key(newest) && !self.step_source(index) {
                self.first -= 1;
            }
        }
        self.step_source(self.first);
        self.choose();
    }
}
