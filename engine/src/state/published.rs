//! The versions that readers see, and those waiting to become visible.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Version;
use crate::pages::Age;

/// A version whose log record is written but possibly not flushed.
struct Staged {
    version: Arc<Version>,
    needs_flush: bool,
}

/// The newest visible version, the versions waiting to become visible, and those that live
/// snapshots pin.
pub(crate) struct Published {
    pub current: Arc<Version>,
    /// Versions after `current`, ascending; the first needs a flush.
    staged: VecDeque<Staged>,
    /// Number of snapshots per age, ascending: a new snapshot always pins the newest version.
    live: Vec<(Age, usize)>,
}

impl Published {
    pub(crate) fn new(current: Arc<Version>) -> Self {
        Self {
            current,
            staged: VecDeque::new(),
            live: Vec::new(),
        }
    }

    /// The version that the next transaction builds on.
    pub(crate) fn newest(&self) -> &Arc<Version> {
        self.staged.back().map_or(&self.current, |staged| &staged.version)
    }

    /// Changes how the versions from `first` on hold their content, not the content itself.
    pub(crate) fn relayout(&mut self, first: u64, change: impl Fn(&mut Version)) {
        let staged = self.staged.iter_mut().map(|staged| &mut staged.version);
        for version in std::iter::once(&mut self.current).chain(staged) {
            if version.version >= first {
                change(Arc::make_mut(version));
            }
        }
    }

    /// Adds a version; returns whether it is visible immediately.
    pub(crate) fn stage(&mut self, version: Version, needs_flush: bool) -> bool {
        let version = Arc::new(version);
        if self.staged.is_empty() && !needs_flush {
            self.show(version);
            return true;
        }
        self.staged.push_back(Staged { version, needs_flush });
        false
    }

    /// Makes a version visible. The previous one is dropped first, so that memtables which only these two
    /// share can be changed in place.
    fn show(&mut self, mut version: Arc<Version>) {
        self.current = Arc::default();
        Arc::make_mut(&mut version).absorb();
        self.current = version;
    }

    /// Makes a version visible that is durable and newer than all others.
    pub(crate) fn install(&mut self, version: Arc<Version>) {
        self.staged.clear();
        self.current = version;
    }

    /// Makes visible the versions that are durable up to `durable`, and successors that need no
    /// flush.
    pub(crate) fn publish(&mut self, durable: u64) {
        while let Some(next) = self.staged.front() {
            if next.needs_flush && next.version.version > durable {
                break;
            }
            if let Some(next) = self.staged.pop_front() {
                self.show(next.version);
            }
        }
    }

    /// Newest version that waits for a flush.
    pub(crate) fn awaited(&self) -> Option<u64> {
        let waiting = self.staged.iter().rev().find(|staged| staged.needs_flush);
        waiting.map(|staged| staged.version.version)
    }

    /// Pins the newest visible version for a snapshot.
    pub(crate) fn pin(&mut self) -> Arc<Version> {
        let age = self.current.age();
        match self.live.last_mut() {
            Some((newest, count)) if *newest == age => *count += 1,
            _ => self.live.push((age, 1)),
        }
        Arc::clone(&self.current)
    }

    pub(crate) fn unpin(&mut self, age: Age) {
        if let Ok(at) = self.live.binary_search_by_key(&age, |(age, _)| *age) {
            self.live[at].1 -= 1;
            if self.live[at].1 == 0 {
                self.live.remove(at);
            }
        }
    }

    pub(crate) fn snapshots(&self) -> usize {
        self.live.iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn oldest(&self) -> Option<Age> {
        self.live.first().map(|(age, _)| *age)
    }
}
