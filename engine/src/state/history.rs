//! Changes of recent commits, retained in memory while optimistic transactions need to see what they
//! missed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Memory limit of the retained records. Transactions that began before a dropped record run into a
/// conflict.
const MAX_BYTES: usize = 32 << 20;

/// The changes of one or more commits, encoded as in the log.
#[derive(Clone)]
pub(crate) struct Missed {
    pub version: u64,
    /// `None`: too many changes to retain.
    pub record: Option<Arc<[u8]>>,
}

/// Recent changes, oldest first.
#[derive(Default)]
pub(crate) struct History {
    commits: VecDeque<Missed>,
    bytes: usize,
    /// Versions at which active transactions began, with the number of transactions per version.
    active: BTreeMap<u64, u64>,
    /// All commits after this version are retained.
    horizon: u64,
}

impl History {
    /// Whether commits have to be retained.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.active.is_empty()
    }

    /// Registers a transaction that begins at `version`, the newest visible one.
    pub(crate) fn enter(&mut self, version: u64) {
        if self.active.is_empty() {
            self.drop_through(version);
            self.horizon = self.horizon.max(version);
        }
        *self.active.entry(version).or_default() += 1;
    }

    /// Unregisters a transaction that began at `version`. Retains what comes after `visible`, the newest
    /// visible version: the next transaction may begin there.
    pub(crate) fn leave(&mut self, version: u64, visible: u64) {
        if let Some(count) = self.active.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                self.active.remove(&version);
            }
        }
        let oldest = self.active.first_key_value().map_or(visible, |(version, _)| *version);
        self.drop_through(oldest);
    }

    fn drop_through(&mut self, version: u64) {
        while self.commits.front().is_some_and(|changes| changes.version <= version) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(changes) = self.commits.pop_front() {
            self.bytes -= changes.record.map_or(0, |record| record.len());
            self.horizon = self.horizon.max(changes.version);
        }
    }

    /// Records a commit newer than all before; `visible` is the newest visible version. A commit
    /// that is not visible yet will be news to any transaction that begins before it is.
    pub(crate) fn push(&mut self, version: u64, record: Option<Vec<u8>>, visible: u64) {
        if !self.is_wanted() {
            self.drop_through(visible);
            if version <= visible {
                return;
            }
        }
        self.bytes += record.as_ref().map_or(0, Vec::len);
        let record = record.map(Arc::from);
        self.commits.push_back(Missed { version, record });
        while self.bytes > MAX_BYTES {
            self.drop_oldest();
        }
    }

    /// All changes after `version`; `None` if some are no longer retained.
    pub(crate) fn since(&self, version: u64) -> Option<Vec<Missed>> {
        if version < self.horizon {
            return None;
        }
        let later = self.commits.iter().filter(|changes| changes.version > version);
        Some(later.cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_kept_while_an_older_transaction_lives() {
        let mut history = History::default();
        history.push(1, Some(vec![1]), 1);
        history.enter(1);
        history.push(2, Some(vec![2]), 2);
        history.enter(2);
        history.push(3, None, 3);
        assert_eq!(history.since(1).map(|list| list.len()), Some(2));
        assert_eq!(history.since(2).map(|list| list.len()), Some(1));
        assert!(history.since(0).is_none());
        history.leave(1, 3);
        assert!(history.since(1).is_none());
        assert_eq!(history.since(2).map(|list| list.len()), Some(1));
        history.leave(2, 3);
        assert!(!history.is_wanted());
        history.enter(7);
        assert!(history.since(2).is_none());
        assert_eq!(history.since(7).map(|list| list.len()), Some(0));
    }

    #[test]
    fn invisible_commits_are_news_to_a_new_transaction() {
        let mut history = History::default();
        history.push(1, Some(vec![1]), 0);
        history.push(2, Some(vec![2]), 1);
        history.enter(1);
        assert_eq!(history.since(1).map(|list| list.len()), Some(1));
        // Regression: the end of the last transaction dropped them, and the next one overlooked them.
        history.leave(1, 1);
        history.enter(1);
        assert_eq!(history.since(1).map(|list| list.len()), Some(1));
        history.leave(1, 2);
        history.push(3, Some(vec![3]), 3);
        assert!(history.commits.is_empty());
        assert_eq!(history.bytes, 0);
    }

    /// Regression: strict commits, none of which is visible yet when handed over, were all retained.
    #[test]
    fn visible_commits_are_dropped() {
        let mut history = History::default();
        for version in 1..=5 {
            history.push(version, Some(vec![0; 10]), version - 1);
            assert_eq!(history.bytes, 10);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = History::default();
        history.enter(0);
        for version in 1..=5 {
            history.push(version, Some(vec![0; 10 << 20]), version);
        }
        assert!(history.since(0).is_none());
        assert_eq!(history.since(3).map(|list| list.len()), Some(2));
        // What was dropped while it was invisible is known to be missing.
        history.leave(0, 0);
        history.enter(0);
        assert!(history.since(0).is_none());
    }
}
