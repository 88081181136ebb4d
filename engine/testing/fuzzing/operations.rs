//! Under any operations a database behaves like sorted maps, and a power failure leaves a committed
//! state.

#[cfg(feature = "encryption")]
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};

use crate::block::Compression;
use crate::database::{AdvancedOptions, Database, Options};
use crate::range::{Direction, KeyRange};
use crate::snapshot::Snapshot;
use crate::testing::shadow::use_key;
use crate::testing::sim::{CrashPolicy, SimStorage};
use crate::transaction::Durability;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;
type Model = BTreeMap<&'static str, Records>;

const NAMES: [&str; 3] = ["", "a", "other"];
const MAX_STEPS: usize = 100;
const MAX_CHANGES: usize = 40;

/// Few distinct keys, so that they recur: counters, keys that differ early, keys that differ late.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Key {
    shape: u8,
    number: u8,
}

impl Key {
    fn bytes(self, max: usize) -> Vec<u8> {
        let mut long = vec![self.number % 3; max];
        match self.shape % 8 {
            0..=3 => vec![self.shape % 4, self.number],
            4 => vec![self.number % 3; usize::from(self.number % 9)],
            5 => {
                long[0] = self.number;
                long
            }
            6 => {
                long[max - 1] = self.number;
                long
            }
            _ => long[..usize::from(self.number) * max / 255].to_vec(),
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum End {
    Unbounded,
    Included(Key),
    Excluded(Key),
}

impl End {
    fn bound(self, max: usize) -> Bound<Vec<u8>> {
        match self {
            Self::Unbounded => Bound::Unbounded,
            Self::Included(key) => Bound::Included(key.bytes(max)),
            Self::Excluded(key) => Bound::Excluded(key.bytes(max)),
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Change {
    Set(u8, Key, u8),
    SetMany(u8, Key, u8),
    SetLarge(u8, Key, u8),
    Delete(u8, Key),
    DeleteMany(u8, Key, u8),
    /// Without checking whether the keys exist.
    PutMany(u8, Key, u8),
    DiscardMany(u8, Key, u8),
    Clear(u8, End, End),
    Drop(u8),
    Seal,
}

/// A list whose length is one byte. The default, a byte before each element, makes short lists.
#[derive(Debug)]
struct Changes(Vec<Change>);

impl<'a> Arbitrary<'a> for Changes {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let len = u.int_in_range(0..=MAX_CHANGES)?;
        (0..len).map(|_| u.arbitrary()).collect::<Result<_, _>>().map(Self)
    }
}

#[derive(Arbitrary, Debug)]
enum Step {
    Commit(Changes, u8),
    Flush,
    RollBack(Changes),
    Checkpoint,
    Snapshot,
    CheckSnapshot(u8),
    Read(u8, Key, End, End, u8),
    Reopen(bool),
    /// Operation at which power fails, counted from here; the policy; the seed of what survives.
    PowerCut(u8, u8, u8, Changes),
    Verify,
}

struct Run {
    storage: SimStorage,
    options: Options,
    database: Option<Database>,
    /// The model of each version that a crash may leave.
    states: BTreeMap<u64, Model>,
    acknowledged: u64,
    snapshots: Vec<Snapshot>,
}

/// Fills a buffer with numbers that are the same in every run of a plan.
#[cfg(feature = "encryption")]
fn repeatable(buffer: &mut [u8]) {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(1) };
    }
    for byte in buffer {
        let state = STATE.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        STATE.set(state);
        *byte = (state >> 56) as u8;
    }
}

/// Runs a plan of operations against a model.
pub fn operations(bytes: &[u8]) -> bool {
    let mut u = Unstructured::new(bytes);
    let Ok((size, is_compressed)) = <(u8, bool)>::arbitrary(&mut u) else {
        return false;
    };
    let options = Options {
        #[cfg(feature = "encryption")]
        key: (size & 4 != 0).then(|| crate::cipher::Key::with_random([7; 32], repeatable)),
        cache_bytes: 64 << 10,
        compression: if is_compressed {
            Compression::Lz4
        } else {
            Compression::None
        },
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: [256, 300, 512, 1024][usize::from(size % 4)],
            database_id: Some(7),
            log_bytes: Some(16 << 10),
            session: Some(0),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    use_key(options.key.clone());
    let mut run = Run {
        storage: SimStorage::new(),
        options,
        database: None,
        states: BTreeMap::from([(0, Model::new())]),
        acknowledged: 0,
        snapshots: Vec::new(),
    };
    run.open();
    for _ in 0..MAX_STEPS {
        match u.arbitrary() {
            Ok(step) if !u.is_empty() => run.step(&step),
            _ => break,
        }
    }
    run.verify();
    run.reopen(true);
    use_key(None);
    true
}

impl Run {
    fn open(&mut self) {
        let storage = Arc::new(self.storage.clone());
        self.options.advanced.session = self.options.advanced.session.map(|session| session + 1);
        let database = Database::open(storage, self.options.clone()).expect("what is written can be opened");
        let version = database.version();
        assert!(version >= self.acknowledged, "an acknowledged commit is lost");
        assert!(self.states.contains_key(&version), "version {version} was never begun");
        self.states.retain(|other, _| *other <= version);
        self.acknowledged = version;
        self.database = Some(database);
        self.verify();
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("it is opened again at once")
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Commit(changes, durability) => {
                let durability =
                    [Durability::None, Durability::Strict, Durability::Relaxed][usize::from(*durability % 3)];
                assert!(self.transaction(changes, Some(durability)), "storage that works");
            }
            Step::RollBack(changes) => assert!(self.transaction(changes, None), "storage that works"),
            Step::Checkpoint => {
                self.database().checkpoint().expect("storage that works");
                self.acknowledged = self.database().version();
            }
            Step::Flush => {
                self.database().flush().expect("storage that works");
                self.acknowledged = self.database().version();
            }
            Step::Snapshot => self.snapshots.push(self.database().snapshot()),
            Step::CheckSnapshot(index) if !self.snapshots.is_empty() => {
                let index = usize::from(*index) % self.snapshots.len();
                let snapshot = self.snapshots.swap_remove(index);
                self.check(&snapshot);
            }
            Step::CheckSnapshot(_) => {}
            Step::Read(name, key, lower, upper, skip) => self.read(name_of(*name), *key, *lower, *upper, *skip),
            Step::Reopen(closes) => self.reopen(*closes),
            Step::PowerCut(after, policy, seed, changes) => {
                self.storage
                    .cut_at(self.storage.counters().operations + u64::from(*after % 32));
                self.transaction(changes, Some(Durability::Strict));
                let policy = CrashPolicy::ALL[usize::from(*policy) % CrashPolicy::ALL.len()];
                let image = self.storage.crash(policy, u64::from(*seed));
                self.snapshots.clear();
                self.database = None;
                self.storage = SimStorage::from_files(image);
                self.open();
            }
            Step::Verify => self.verify(),
        }
    }

    fn reopen(&mut self, closes: bool) {
        for snapshot in std::mem::take(&mut self.snapshots) {
            self.check(&snapshot);
        }
        let database = self.database.take().expect("it is open");
        let version = database.version();
        if closes {
            database.close().expect("storage that works");
            self.acknowledged = version;
        } else {
            drop(database);
        }
        self.open();
    }

    /// Runs changes as one transaction, or rolls them back; `false` if the storage failed.
    fn transaction(&mut self, Changes(changes): &Changes, end: Option<Durability>) -> bool {
        let database = self.database.take().expect("it is open");
        let base = database.version();
        self.states.retain(|version, _| *version <= base);
        let mut state = self.states[&base].clone();
        let mut sealed = BTreeMap::new();
        let max = database.max_key_bytes();
        let mut transaction = database.begin().expect("it is not poisoned");
        let mut made = Ok(());
        for change in changes {
            made = apply(&mut transaction, &mut state, *change, max);
            if made.is_err() {
                break;
            }
            if matches!(change, Change::Seal) {
                sealed.insert(transaction.seal().version, state.clone());
            }
        }
        if let Some(durability) = end
            && made.is_ok()
        {
            let version = transaction.seal().version;
            sealed.entry(version).or_insert(state);
            self.states.append(&mut sealed);
            made = transaction
                .commit(durability)
                .map(|info| assert_eq!(info.version, version));
            if made.is_ok() && durability == Durability::Strict {
                self.acknowledged = version;
            }
        } else {
            drop(transaction);
        }
        self.database = Some(database);
        made.is_ok()
    }

    fn verify(&self) {
        self.check(&self.database().snapshot());
        let report = self.database().verify().expect("storage that works");
        assert!(report.is_ok(), "{:?}", report.problems);
    }

    /// Compares everything in a snapshot with the model of its version.
    fn check(&self, snapshot: &Snapshot) {
        let model = &self.states[&snapshot.version()];
        let names: Vec<String> = snapshot.collections().into_iter().map(|info| info.name).collect();
        assert!(names.iter().eq(model.keys()), "{names:?}");
        for (name, records) in model {
            let tree = snapshot.collection(name).expect("it is listed");
            assert_eq!(tree.len(), records.len() as u64);
            let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
            for (key, value) in records {
                assert!(cursor.advance().expect("storage that works"));
                assert_eq!(cursor.key(), key);
                assert_eq!(cursor.value().as_ref(), Ok(value));
            }
            assert!(!cursor.advance().expect("storage that works"));
        }
    }

    fn read(&self, name: &'static str, key: Key, lower: End, upper: End, skip: u8) {
        let max = self.database().max_key_bytes();
        let Some(tree) = self.database().snapshot().collection(name) else {
            return;
        };
        let records = &self.states[&self.database().version()][name];
        let (key, lower, upper) = (key.bytes(max), lower.bound(max), upper.bound(max));
        assert_eq!(tree.get(&key).as_ref().map(Option::as_ref), Ok(records.get(&key)));
        let below = records.range(..key.clone()).count() as u64;
        assert_eq!(tree.rank(&key), Ok(below));
        let at = records.iter().nth(below as usize);
        assert_eq!(tree.at(below), Ok(at.map(|(key, value)| (key.clone(), value.clone()))));
        let bounds = (lower.as_ref(), upper.as_ref());
        let inside = |key: &&Vec<u8>| bounds.contains(*key);
        let mut expected: Vec<&Vec<u8>> = records.keys().filter(inside).collect();
        let range = KeyRange {
            lower: lower.as_ref().map(Vec::as_slice),
            upper: upper.as_ref().map(Vec::as_slice),
        };
        assert_eq!(tree.count(range), Ok(expected.len() as u64));
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut cursor = tree.cursor(range, direction);
            cursor.skip(u64::from(skip % 16)).expect("storage that works");
            for key in expected.iter().skip(usize::from(skip % 16)) {
                assert!(cursor.advance().expect("storage that works") && cursor.key() == key.as_slice());
            }
            assert!(!cursor.advance().expect("storage that works"));
            cursor.seek(&key).expect("storage that works");
            let wanted = expected.iter().find(|other| match direction {
                Direction::Forward => ***other >= key,
                Direction::Reverse => ***other <= key,
            });
            assert_eq!(cursor.advance(), Ok(wanted.is_some()));
            assert!(wanted.is_none_or(|wanted| cursor.key() == wanted.as_slice()));
            expected.reverse();
        }
    }
}

fn name_of(number: u8) -> &'static str {
    NAMES[usize::from(number) % NAMES.len()]
}

fn apply(
    transaction: &mut crate::ExclusiveTransaction<'_>,
    state: &mut Model,
    change: Change,
    max: usize,
) -> crate::Result<()> {
    let mut set = |state: &mut Model, name: u8, key: Vec<u8>, len: usize| {
        let name = name_of(name);
        let value: Vec<u8> = (0..len).map(|at| (at / 7 + len) as u8).collect();
        let existed = transaction.set(name, &key, &value)?;
        let old = state.entry(name).or_default().insert(key, value);
        assert_eq!(existed, old.is_some());
        Ok(())
    };
    let run = |key: Key, count: u8| {
        (0..count % 32).map(move |step| Key {
            number: key.number.wrapping_add(step),
            ..key
        })
    };
    match change {
        Change::Set(name, key, len) => set(state, name, key.bytes(max), usize::from(len % 80))?,
        Change::SetLarge(name, key, len) => set(state, name, key.bytes(max), usize::from(len) * 13)?,
        Change::SetMany(name, key, count) => {
            for key in run(key, count) {
                set(state, name, key.bytes(max), usize::from(count % 40))?;
            }
        }
        Change::Delete(name, key) => delete(transaction, state, name, &key.bytes(max))?,
        Change::DeleteMany(name, key, count) => {
            for key in run(key, count) {
                delete(transaction, state, name, &key.bytes(max))?;
            }
        }
        Change::PutMany(name, key, count) => {
            for number in 0..count {
                let key = Key {
                    number: key.number.wrapping_add(number.wrapping_mul(11)),
                    ..key
                };
                let (key, value) = (key.bytes(max), vec![number; usize::from(count % 40)]);
                transaction.put(name_of(name), &key, &value)?;
                state.entry(name_of(name)).or_default().insert(key, value);
            }
        }
        Change::DiscardMany(name, key, count) => {
            for key in run(key, count) {
                let key = key.bytes(max);
                transaction.discard(name_of(name), &key)?;
                state.get_mut(name_of(name)).map(|records| records.remove(&key));
            }
        }
        Change::Clear(name, lower, upper) => {
            let (lower, upper) = (lower.bound(max), upper.bound(max));
            let range = KeyRange {
                lower: lower.as_ref().map(Vec::as_slice),
                upper: upper.as_ref().map(Vec::as_slice),
            };
            let removed = transaction.clear(name_of(name), range)?;
            let mut expected = 0;
            if let Some(records) = state.get_mut(name_of(name)) {
                expected = records.len();
                records.retain(|key, _| !(lower.as_ref(), upper.as_ref()).contains(key));
                expected -= records.len();
            }
            assert_eq!(removed, expected as u64);
        }
        Change::Drop(name) => {
            let existed = transaction.drop_collection(name_of(name))?;
            assert_eq!(existed, state.remove(name_of(name)).is_some());
        }
        Change::Seal => {}
    }
    Ok(())
}

fn delete(
    transaction: &mut crate::ExclusiveTransaction<'_>,
    state: &mut Model,
    name: u8,
    key: &[u8],
) -> crate::Result<()> {
    let existed = transaction.delete(name_of(name), key)?;
    let old = state.get_mut(name_of(name)).and_then(|records| records.remove(key));
    assert_eq!(existed, old.is_some());
    Ok(())
}
