//! Workloads whose every committed state is known, shared by the crash and fault tests.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use mangrove_engine::storage::Storage;
use mangrove_engine::testing::shadow;
use mangrove_engine::testing::sim::{CrashPolicy, SimRng, SimStorage};
use mangrove_engine::{
    AdvancedOptions, Compression, Database, Direction, Durability, Error, ExclusiveTransaction, Key, KeyRange, Options,
    ReencryptEnd, ReencryptOptions, Snapshot, StagedValue,
};

/// Records by collection.
pub(crate) type State = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// What a workload run knows about its own past.
#[derive(Clone, Default, Debug)]
pub(crate) struct History {
    /// The state of each version; version 0 is empty. The newest may never have been committed.
    pub(crate) states: Vec<Arc<State>>,
    /// Newest version that a strict commit or checkpoint acknowledged.
    pub(crate) acknowledged: u64,
    /// Newest version acknowledged with any durability but `None`: it survives process death.
    pub(crate) handed_over: u64,
    /// Versions whose commits stored an entry for the client, if the workload stores any.
    pub(crate) remembered: Option<BTreeSet<u64>>,
    /// Whether opening the database was acknowledged.
    pub(crate) opened: bool,
}

impl History {
    /// Returns the history of a workload that remembers a client with each commit.
    pub(crate) fn remembering() -> Self {
        Self {
            remembered: Some(BTreeSet::new()),
            ..Self::default()
        }
    }

    fn acknowledge(&mut self, version: u64) {
        self.acknowledged = version;
        self.handed_over = version;
    }
}

/// The flavours of workload that the crash test runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flavour {
    /// Single records, each durable at once.
    Tiny,
    /// Dozens of changes per commit: splits, merges, cleared ranges.
    Batches,
    /// Values of many blocks.
    Large,
    /// Commits of mixed durability, held snapshots, reopening in between.
    Mixed,
    /// Like `Mixed` without a log: every durable commit is a checkpoint.
    Unlogged,
    /// Transactions larger than memory.
    Huge,
    /// Memtables that touch most leaves of their trees, so a merge takes several partial
    /// checkpoints. Some values are out of line.
    Merging,
    /// As `Mixed`, with values that are written in parts, over several commits and checkpoints, and
    /// stored or dropped then.
    Staged,
}

impl Flavour {
    fn is_mixed(self) -> bool {
        matches!(self, Self::Mixed | Self::Unlogged | Self::Staged)
    }
}

thread_local! {
    static IS_ENCRYPTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test whose databases have a key, if `is_encrypted`.
pub(crate) fn encrypted<T>(is_encrypted: bool, test: impl FnOnce() -> T) -> T {
    IS_ENCRYPTED.set(is_encrypted);
    shadow::use_key(is_encrypted.then(|| Key::new([9; 32])));
    let result = test();
    IS_ENCRYPTED.set(false);
    shadow::use_key(None);
    result
}

/// Returns options for opening; `session` distinguishes openings of the same files.
pub(crate) fn options(flavour: Flavour, session: u64) -> Options {
    Options {
        cache_bytes: 64 << 10,
        compression: if flavour == Flavour::Large {
            Compression::None
        } else {
            Compression::Lz4
        },
        key: IS_ENCRYPTED.get().then(|| Key::new([9; 32])),
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: if flavour == Flavour::Batches { 256 } else { 512 },
            log_bytes: Some(match flavour {
                Flavour::Unlogged => 0,
                Flavour::Merging => 256 << 10,
                _ => 16 << 10,
            }),
            reserve_bytes: if matches!(flavour, Flavour::Batches | Flavour::Huge) {
                8 << 10
            } else {
                0
            },
            session: Some(session),
            database_id: Some(7),
        },
        ..Options::default()
    }
}

pub(crate) fn key(rng: &mut SimRng) -> Vec<u8> {
    let len = rng.below(20) as usize;
    let span = [2, 26, 256][rng.below(3) as usize];
    (0..len).map(|_| rng.below(span) as u8).collect()
}

fn key_of(rng: &mut SimRng, flavour: Flavour) -> Vec<u8> {
    match flavour {
        Flavour::Merging => (rng.below(1500) * 40_503 % 65_536).to_be_bytes()[5..].to_vec(),
        _ => key(rng),
    }
}

fn value(rng: &mut SimRng, flavour: Flavour) -> Vec<u8> {
    let len = match (flavour, rng.below(8)) {
        (Flavour::Large, _) => rng.below(6000),
        (_, 0) => 0,
        (_, 1) => rng.below(1200),
        (Flavour::Merging, 2) => 600 + rng.below(600),
        _ => rng.below(60),
    };
    let byte = rng.below(256) as u8;
    (0..len).map(|at| byte.wrapping_add((at / 7) as u8)).collect()
}

/// Makes one random change to the transaction and to the model.
fn change(
    transaction: &mut ExclusiveTransaction<'_>,
    state: &mut State,
    rng: &mut SimRng,
    flavour: Flavour,
) -> Result<(), Error> {
    let name = match flavour {
        // Most changes go to one tree, so that a memtable is not merged into it all at once.
        Flavour::Merging => ["a", "a", "a", "b"][rng.below(4) as usize],
        _ => ["a", "b", ""][rng.below(3) as usize],
    };
    let kind = match rng.below(20) {
        // Lets the trees grow.
        12..=18 if flavour == Flavour::Merging && rng.below(4) > 0 => 0,
        kind => kind,
    };
    match kind {
        0..=11 => {
            let (key, value) = (key_of(rng, flavour), value(rng, flavour));
            transaction.set(name, &key, &value)?;
            state.entry(name.to_owned()).or_default().insert(key, value);
        }
        12..=16 => {
            let records = state.get(name);
            let known = records.and_then(|records| records.keys().nth(rng.below(records.len().max(1) as u64) as usize));
            let key = known.cloned().unwrap_or_else(|| key(rng));
            let existed = transaction.delete(name, &key)?;
            let removed = state
                .get_mut(name)
                .is_some_and(|records| records.remove(&key).is_some());
            assert_eq!(existed, removed);
        }
        17 => {
            let (mut lower, mut upper) = (key_of(rng, flavour), key_of(rng, flavour));
            if flavour == Flavour::Merging && rng.below(8) > 0 {
                // Keeps most of the tree.
                upper = [lower.as_slice(), b"\xff"].concat();
            }
            if lower > upper {
                std::mem::swap(&mut lower, &mut upper);
            }
            let range = KeyRange {
                lower: Bound::Included(&lower),
                upper: Bound::Excluded(&upper),
            };
            transaction.clear(name, range)?;
            if let Some(records) = state.get_mut(name) {
                records.retain(|key, _| *key < lower || *key >= upper);
            }
        }
        18 if rng.below(4) == 0 && (flavour != Flavour::Merging || name == "b") => {
            transaction.drop_collection(name)?;
            state.remove(name);
        }
        19 if flavour == Flavour::Merging && rng.below(10) == 0 => {
            // Clears and refills, so that the log has changes of the same keys before and after.
            transaction.clear(name, KeyRange::all())?;
            let mut records = BTreeMap::new();
            for _ in 0..120 {
                let (key, value) = (key_of(rng, flavour), value(rng, flavour));
                transaction.set(name, &key, &value)?;
                records.insert(key, value);
            }
            state.insert(name.to_owned(), records);
        }
        19 if flavour == Flavour::Huge => {
            let records = state.entry(name.to_owned()).or_default();
            for _ in 0..rng.below(40) {
                let (key, value) = (key(rng), value(rng, flavour));
                transaction.set(name, &key, &value)?;
                records.insert(key, value);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Values that are being written, with what was appended to them.
type StagedValues = Vec<(StagedValue, Vec<u8>)>;

/// Longer values are compared by their digests.
const MAX_COMPARED_BYTES: usize = 64 << 10;

fn digested(value: Vec<u8>) -> Vec<u8> {
    if value.len() <= MAX_COMPARED_BYTES {
        return value;
    }
    let (words, rest) = value.as_chunks::<8>();
    let sum = words.iter().fold(0_u64, |sum, word| {
        (sum ^ u64::from_le_bytes(*word))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(23)
    });
    [&(value.len() as u64).to_le_bytes(), &sum.to_le_bytes(), rest].concat()
}

/// The state as [`read_state`] returns it.
pub(crate) fn digests(state: &State) -> State {
    let digest = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), digested(value.clone()));
    let records = |records: &BTreeMap<Vec<u8>, Vec<u8>>| records.iter().map(digest).collect();
    state.iter().map(|(name, all)| (name.clone(), records(all))).collect()
}

/// Begins, continues or drops a staged value; nothing of it is visible.
fn stage(database: &Database, staged: &mut StagedValues, rng: &mut SimRng) -> Result<(), Error> {
    match rng.below(6) {
        0 if !staged.is_empty() => drop(staged.swap_remove(rng.below(staged.len() as u64) as usize)),
        1 if !staged.is_empty() => {}
        kind => {
            if staged.is_empty() || (kind == 2 && staged.len() < 3) {
                match database.stage_value("a") {
                    Ok(value) => staged.push((value, Vec::new())),
                    Err(Error::NotFound { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            let index = rng.below(staged.len() as u64) as usize;
            let (value, bytes) = &mut staged[index];
            let len = [1_200_000, 500_000, 70_000, 300][rng.below(4) as usize] + rng.below(100);
            // Runs that compress to little: the images stay small.
            let byte = rng.below(256) as u8;
            let part: Vec<u8> = (0..len).map(|at| byte.wrapping_add((at >> 14) as u8)).collect();
            value.append(&part)?;
            bytes.extend(part);
        }
    }
    Ok(())
}

/// Stores a staged value. Refused if its collection was dropped since.
fn put_staged(
    transaction: &mut ExclusiveTransaction<'_>,
    state: &mut State,
    staged: &mut StagedValues,
    rng: &mut SimRng,
) -> Result<(), Error> {
    if staged.is_empty() {
        return Ok(());
    }
    let (value, bytes) = staged.swap_remove(rng.below(staged.len() as u64) as usize);
    let key = [b's', rng.below(3) as u8].to_vec();
    match transaction.put_staged("a", &key, value, None) {
        Ok(()) => {
            state.entry("a".to_owned()).or_default().insert(key, digested(bytes));
            Ok(())
        }
        Err(Error::InvalidArgument { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Runs a workload until it ends or the storage fails; the history is correct in both cases.
pub(crate) fn run(
    storage: &Arc<dyn Storage>,
    flavour: Flavour,
    seed: u64,
    commits: u64,
    history: &mut History,
) -> Result<(), Error> {
    let mut rng = SimRng::new(seed);
    if history.states.is_empty() {
        history.states.push(Arc::default());
    }
    let mut database = Some(Database::open(Arc::clone(storage), options(flavour, rng.next_u64()))?);
    history.opened = true;
    let mut snapshots: Vec<(Snapshot, Arc<State>)> = Vec::new();
    let mut staged = StagedValues::new();
    for _ in 0..commits {
        let open = database.as_ref().expect("it is opened again at once");
        if flavour == Flavour::Staged {
            stage(open, &mut staged, &mut rng)?;
        }
        commit(open, history, &mut rng, flavour, &mut staged)?;
        if IS_ENCRYPTED.get() && open.version() % 5 == 3 {
            re_encrypt(open, 2048, 3)?;
        }
        if flavour == Flavour::Tiny && rng.below(8) == 0 {
            open.checkpoint()?;
        }
        if matches!(flavour, Flavour::Mixed | Flavour::Merging | Flavour::Staged) {
            // Idle time, occasionally more than a merge needs.
            for _ in 0..[400, 0, 3, 0][open.version() as usize % 4] {
                open.merge_slice()?;
            }
        }
        if !flavour.is_mixed() {
            continue;
        }
        match rng.below(9) {
            0 => snapshots.push((open.snapshot(), Arc::clone(&history.states[open.version() as usize]))),
            1 if !snapshots.is_empty() => {
                let (snapshot, state) = snapshots.swap_remove(rng.below(snapshots.len() as u64) as usize);
                assert!(is_same(&read_state(&snapshot)?, &state), "a held snapshot changed");
            }
            2 => {
                open.checkpoint()?;
                history.acknowledge(open.version());
            }
            3 => {
                snapshots.clear();
                let version = open.version();
                let open = database.take().expect("it is open");
                if rng.below(2) == 0 {
                    open.close()?;
                } else {
                    // Like process death: everything handed over is there.
                    open.flush()?;
                    drop(open);
                }
                // Those that outlive the database end with it.
                staged.clear();
                history.acknowledge(version);
                database = Some(Database::open(Arc::clone(storage), options(flavour, rng.next_u64()))?);
            }
            4 => {
                open.flush()?;
                history.acknowledge(open.version());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Runs some slices of a re-encryption, which begins where none is under way. Its checkpoints may make
/// commits durable that nobody waits for.
pub(crate) fn re_encrypt(database: &Database, slice_bytes: u64, slices: u32) -> Result<ReencryptEnd, Error> {
    let options = ReencryptOptions {
        slice_bytes,
        ..ReencryptOptions::default()
    };
    let mut left = slices;
    database.reencrypt(options, &mut |_| {
        left -= 1;
        if left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })
}

/// Cuts work on a database at each `step`-th of its operations, and visits what crashes can leave: the
/// image, the seed of the crash, what the image has to hold, and a text for failures. `work` notes the
/// version that it has acknowledged.
pub(crate) fn visit_crashes(
    (image, operations, step): (&BTreeMap<String, Vec<u8>>, u64, usize),
    history: &History,
    work: impl Fn(&SimStorage, &mut u64),
    mut visit: impl FnMut(BTreeMap<String, Vec<u8>>, u64, &History, &str),
) {
    for cut in (0..operations).step_by(step) {
        let storage = SimStorage::from_files(image.clone());
        storage.cut_at(cut);
        let mut history = history.clone();
        work(&storage, &mut history.acknowledged);
        for policy in CrashPolicy::ALL {
            for crash_seed in 0..3 {
                let context = format!("cut {cut} of {operations} {policy:?} {crash_seed}");
                visit(storage.crash(policy, crash_seed), crash_seed, &history, &context);
            }
        }
    }
}

/// Whether the commit on top of this version gets all the idle time that its merge takes. No flush
/// comes before the merge.
fn is_merged_at_once(base: u64) -> bool {
    base % 4 == 3
}

fn commit(
    database: &Database,
    history: &mut History,
    rng: &mut SimRng,
    flavour: Flavour,
    staged: &mut StagedValues,
) -> Result<(), Error> {
    let base = database.version();
    history.states.truncate(base as usize + 1);
    let mut state = State::clone(&history.states[base as usize]);
    let changes = match flavour {
        Flavour::Tiny => 1,
        Flavour::Batches => 1 + rng.below(60),
        Flavour::Large => 1 + rng.below(3),
        Flavour::Mixed | Flavour::Unlogged | Flavour::Staged => 1 + rng.below(12),
        Flavour::Huge => 200 + rng.below(400),
        // Begins with a tree that is larger than a memtable.
        Flavour::Merging if base == 0 => 1500,
        Flavour::Merging if is_merged_at_once(base) => 300,
        Flavour::Merging => 10 + rng.below(60),
    };
    let durability = match rng.below(5) {
        0 if flavour.is_mixed() => Durability::None,
        1 | 2 if flavour.is_mixed() || flavour == Flavour::Merging => Durability::Relaxed,
        _ if flavour == Flavour::Merging && is_merged_at_once(base) => Durability::Relaxed,
        _ => Durability::Strict,
    };
    let mut transaction = database.begin()?;
    for number in 0..changes {
        change(&mut transaction, &mut state, rng, flavour)?;
        if flavour == Flavour::Staged && number == 0 && rng.below(3) == 0 {
            put_staged(&mut transaction, &mut state, staged, rng)?;
        }
        if flavour.is_mixed() && number == 4 {
            let sealed = transaction.seal().version;
            if sealed as usize == history.states.len() {
                history.states.push(Arc::new(state.clone()));
            }
        }
    }
    if (flavour.is_mixed() || flavour == Flavour::Huge) && rng.below(8) == 0 {
        // Rolled back; its sealed parts never happened.
        history.states.truncate(base as usize + 1);
        return Ok(());
    }
    let version = transaction.seal().version;
    if version as usize == history.states.len() {
        history.states.push(Arc::new(state));
    }
    if let Some(remembered) = &mut history.remembered {
        transaction.remember_client(CLIENT, &version.to_le_bytes())?;
        if version > base {
            remembered.insert(version);
        }
    }
    transaction.commit(durability)?;
    match durability {
        Durability::Strict => history.acknowledge(version),
        Durability::Relaxed => history.handed_over = version,
        Durability::None => {}
    }
    Ok(())
}

/// The client whose last commit is remembered.
const CLIENT: &[u8] = b"client";

/// Returns all records, read forwards and counted backwards; omits empty collections.
pub(crate) fn read_state(snapshot: &Snapshot) -> Result<State, Error> {
    let mut state = State::new();
    for info in snapshot.collections() {
        let tree = snapshot.collection(&info.name).expect("it is listed");
        let mut records = BTreeMap::new();
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        while cursor.advance()? {
            records.insert(cursor.key().to_vec(), digested(cursor.value()?));
        }
        assert_eq!(records.len() as u64, tree.len());
        let mut backwards = tree.cursor(KeyRange::all(), Direction::Reverse);
        for key in records.keys().rev() {
            assert!(backwards.advance()? && backwards.key() == key);
        }
        assert!(!backwards.advance()?);
        if !records.is_empty() {
            state.insert(info.name, records);
        }
    }
    Ok(state)
}

/// Whether what [`read_state`] returned is this state, whose empty collections do not count.
pub(crate) fn is_same(found: &State, state: &State) -> bool {
    found.iter().eq(state.iter().filter(|(_, records)| !records.is_empty()))
}

/// Returns the state without empty collections, as [`read_state`] does.
pub(crate) fn without_empty(state: &State) -> State {
    let full = state.iter().filter(|(_, records)| !records.is_empty());
    full.map(|(name, records)| (name.clone(), records.clone())).collect()
}

/// Checks that an open database is intact and in a state the history allows; returns its version.
pub(crate) fn check(database: &Database, history: &History, context: &str) -> u64 {
    let version = database.version();
    assert!(
        version >= history.acknowledged,
        "{context}: version {version} is older than the acknowledged {}",
        history.acknowledged
    );
    let expected = history.states.get(version as usize);
    let expected = expected.unwrap_or_else(|| panic!("{context}: version {version} was never begun"));
    let remembered = database.snapshot().client(CLIENT);
    let remembered = remembered.unwrap_or_else(|error| panic!("{context}: {error}"));
    let last = history
        .remembered
        .iter()
        .flat_map(|versions| versions.range(..=version))
        .next_back();
    assert!(
        remembered == last.map(|version| version.to_le_bytes().to_vec()),
        "{context}: what is remembered of the client belongs to another commit than version {version}"
    );
    let found = read_state(&database.snapshot()).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(
        is_same(&found, expected),
        "{context}: version {version} is not what was committed"
    );
    let report = database.verify().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(report.is_ok(), "{context}: {:?}", report.problems);
    version
}
