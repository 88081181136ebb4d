//! What a database has to hold: the records of each version, with their expiries.

use std::collections::BTreeMap;
use std::sync::Arc;

use mangrove_engine::testing::sim::SimRng;
use mangrove_engine::{Database, Direction, KeyRange, Snapshot};

/// A record: what its value is made from, and when it expires, 0 for never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub seed: u64,
    pub len: usize,
    pub expires: u64,
}

pub(crate) type Records = BTreeMap<Vec<u8>, Record>;

/// Records by collection. Versions share those that they have in common.
pub(crate) type State = BTreeMap<String, Arc<Records>>;

impl Record {
    /// The value: noise, or runs where it is long enough to be compressed.
    pub(crate) fn value(&self) -> Vec<u8> {
        if self.len > 100_000 {
            let byte = self.seed as u8;
            return (0..self.len).map(|at| byte.wrapping_add((at >> 13) as u8)).collect();
        }
        let mut rng = SimRng::new(self.seed);
        let mut value = Vec::with_capacity(self.len + 8);
        while value.len() < self.len {
            value.extend_from_slice(&rng.next_u64().to_le_bytes());
        }
        value.truncate(self.len);
        value
    }

    fn is_visible(&self, now: u64) -> bool {
        self.expires == 0 || self.expires > now
    }
}

/// The records of a collection, to be changed.
pub(crate) fn records<'s>(state: &'s mut State, name: &str) -> &'s mut Records {
    Arc::make_mut(state.entry(name.to_owned()).or_default())
}

/// The versions that a recovery may lead to.
#[derive(Default)]
pub(crate) struct History {
    pub states: BTreeMap<u64, Arc<State>>,
    /// Newest version that survives a power cut.
    pub acknowledged: u64,
    /// Newest version that survives the death of the process.
    pub handed_over: u64,
}

impl History {
    pub(crate) fn acknowledge(&mut self, version: u64) {
        self.acknowledged = version;
        self.handed_over = version;
    }

    pub(crate) fn state(&self, version: u64) -> Arc<State> {
        let state = self.states.get(&version);
        Arc::clone(state.unwrap_or_else(|| panic!("version {version} was never begun")))
    }

    /// Forgets what was begun behind a version and never became one.
    pub(crate) fn truncate(&mut self, version: u64) {
        self.states.split_off(&(version + 1));
    }

    /// Commits that change nothing that is visible may follow.
    pub(crate) fn allow_same(&mut self, version: u64, count: u64) {
        let state = self.state(version);
        for later in version + 1..=version + count {
            self.states.insert(later, Arc::clone(&state));
        }
    }
}

/// Compares what a snapshot shows with a state at a time; returns what differs.
pub(crate) fn difference(snapshot: &Snapshot, state: &State, now: u64, rng: &mut SimRng) -> Result<(), String> {
    let wrong = |error: mangrove_engine::Error| error.to_string();
    for info in snapshot.collections() {
        if !state.contains_key(&info.name) && snapshot.collection(&info.name).is_some_and(|tree| !tree.is_empty()) {
            return Err(format!("collection {} should not be there", info.name));
        }
    }
    for (name, all) in state {
        let visible: Vec<_> = all.iter().filter(|(_, record)| record.is_visible(now)).collect();
        let Some(tree) = snapshot.collection(name) else {
            if visible.is_empty() {
                continue;
            }
            return Err(format!("collection {name} is missing"));
        };
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        for (key, record) in &visible {
            if !cursor.advance().map_err(wrong)? {
                return Err(format!("{name} ends before {key:?}"));
            }
            if cursor.key() != key.as_slice() {
                return Err(format!("{name} has {:?} instead of {key:?}", cursor.key()));
            }
            if cursor.value().map_err(wrong)? != record.value() {
                return Err(format!("{name} has another value of {key:?}"));
            }
        }
        if cursor.advance().map_err(wrong)? {
            return Err(format!("{name} has {:?} as well", cursor.key()));
        }
        if tree.len() != visible.len() as u64 {
            return Err(format!("{name} counts {} records, not {}", tree.len(), visible.len()));
        }
        if !visible.is_empty() {
            let at = rng.below(visible.len() as u64);
            let (key, record) = visible[at as usize];
            let rank = tree.rank(key).map_err(wrong)?;
            let found = tree.at(at).map_err(wrong)?.map(|(key, _)| key);
            let expires = tree.entry(key).map_err(wrong)?.and_then(|entry| entry.expires_at);
            if rank != at || found.as_ref() != Some(key) || expires.unwrap_or(0) != record.expires {
                return Err(format!(
                    "{name} has {key:?} at {rank}, {found:?} at {at}, expiry {expires:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Checks a database that was just opened; returns its version.
pub(crate) fn check(
    database: &Database,
    history: &History,
    least: u64,
    now: u64,
    rng: &mut SimRng,
    context: &str,
) -> u64 {
    let version = database.version();
    assert!(
        version >= least,
        "{context}: version {version} is older than the acknowledged {least}"
    );
    let state = history.states.get(&version);
    let state = state.unwrap_or_else(|| panic!("{context}: version {version} was never begun"));
    let report = database
        .verify()
        .unwrap_or_else(|error| panic!("{context}: verify: {error}"));
    let found = difference(&database.snapshot(), state, now, rng);
    found.unwrap_or_else(|what| {
        let same = history
            .states
            .iter()
            .filter(|(_, other)| difference(&database.snapshot(), other, now, rng).is_ok());
        let same: Vec<_> = same.map(|(version, _)| version).collect();
        panic!("{context}: version {version} is not what was committed: {what}; the state is that of {same:?}")
    });
    assert!(
        report.is_ok(),
        "{context}: verify: {} problems, {:?}",
        report.problems.len(),
        report.problems.first()
    );
    version
}
