//! A storage that forgets, tears and fails on purpose: the test double behind every crash and fault test.
//!
//! Each file has a durable image and the system's current one. Writes go to the current image and to one ordered list of unflushed operations
//! over all files; a flush of a file makes its part of the list durable. [`SimStorage::crash`] then builds what a power cut could
//! leave: any subset of the unflushed 512-byte sectors, in any order, torn or replaced by garbage. Everything is deterministic from its seed.
//!
//! Operations are counted from 0: writes, flushes and changes of length. Reads are not operations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Storage, StorageFile};
use crate::error::{Error, Result};

const SECTOR_BYTES: usize = 512;

/// What becomes of unflushed operations when the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashPolicy {
    /// None of them happened.
    Nothing,
    /// All of them happened.
    Everything,
    /// The first few happened.
    Prefix,
    /// Any sectors of them happened, in any order.
    RandomSectors,
    /// As `RandomSectors`, and some sectors end in the middle.
    Torn,
    /// As `RandomSectors`, and some sectors hold random bytes.
    Garbage,
}

impl CrashPolicy {
    /// All policies.
    pub const ALL: [Self; 6] = [
        Self::Nothing,
        Self::Everything,
        Self::Prefix,
        Self::RandomSectors,
        Self::Torn,
        Self::Garbage,
    ];
}

/// The error that an injected fault reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// [`Error::Io`].
    Io,
    /// [`Error::StorageFull`].
    StorageFull,
}

/// An injected failure.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Number of the first operation that fails.
    pub at: u64,
    /// What it reports.
    pub kind: FaultKind,
    /// Whether all later operations fail too.
    pub forever: bool,
    /// Whether the first half of a failing write reaches the file.
    pub partial: bool,
}

/// What was asked of the storage so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimCounters {
    /// Writes, flushes and changes of length.
    pub operations: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub bytes_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

/// Small deterministic generator (splitmix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct SimRng(u64);

impl SimRng {
    /// A generator for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit
    }
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if image.len() < end {
                    image.resize(end, 0);
                }
                image[*offset..end].copy_from_slice(bytes);
            }
            Self::SetLen(len) => image.resize(*len, 0),
        }
    }

    /// The change cut at sector borders.
    fn sectors(&self) -> Vec<Change> {
        let Self::Write { offset, bytes } = self else {
            let Self::SetLen(len) = self else {
                unreachable!("there are two kinds")
            };
            return vec![Self::SetLen(*len)];
        };
        let mut parts = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + SECTOR_BYTES - (offset + at) % SECTOR_BYTES);
            parts.push(Self::Write {
                offset: offset + at,
                bytes: bytes[at..end].to_vec(),
            });
            at = end;
        }
        parts
    }
}

#[derive(Default)]
struct FileState {
    durable: Vec<u8>,
    current: Vec<u8>,
    open: Weak<SimFile>,
}

#[derive(Default)]
struct World {
    files: BTreeMap<String, FileState>,
    unflushed: Vec<(String, Change)>,
    counters: SimCounters,
    fault: Option<Fault>,
    cut_at: Option<u64>,
    is_cut: bool,
}

/// A storage in memory that can fail and crash. Clones share one world.
#[derive(Clone, Default)]
pub struct SimStorage {
    world: Arc<Mutex<World>>,
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimStorage {
    /// An empty storage that works.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A storage with the given files, all durable.
    #[must_use]
    pub fn from_files(files: BTreeMap<String, Vec<u8>>) -> Self {
        let storage = Self::new();
        lock(&storage.world).files = files
            .into_iter()
            .map(|(name, bytes)| {
                let state = FileState {
                    durable: bytes.clone(),
                    current: bytes,
                    open: Weak::new(),
                };
                (name, state)
            })
            .collect();
        storage
    }

    /// What a reader of the running system sees.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let world = lock(&self.world);
        world
            .files
            .iter()
            .map(|(name, state)| (name.clone(), state.current.clone()))
            .collect()
    }

    /// Counters since the storage was made.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        lock(&self.world).counters
    }

    /// Cuts the power at operation `at`: it and all after it fail.
    pub fn cut_at(&self, at: u64) {
        lock(&self.world).cut_at = Some(at);
    }

    /// Injects a failure, or ends one.
    pub fn set_fault(&self, fault: Option<Fault>) {
        lock(&self.world).fault = fault;
    }

    /// The files as a power cut now could leave them.
    #[must_use]
    pub fn crash(&self, policy: CrashPolicy, seed: u64) -> BTreeMap<String, Vec<u8>> {
        let world = lock(&self.world);
        let mut rng = SimRng::new(seed ^ (policy as u64) << 56);
        let mut files: BTreeMap<String, Vec<u8>> = world
            .files
            .iter()
            .map(|(name, state)| (name.clone(), state.durable.clone()))
            .collect();
        let apply = |files: &mut BTreeMap<String, Vec<u8>>, name: &str, change: &Change| {
            change.apply(files.get_mut(name).expect("changes name files that exist"));
        };
        let all = world.unflushed.len();
        let whole = match policy {
            CrashPolicy::Nothing => 0,
            CrashPolicy::Everything => all,
            CrashPolicy::Prefix => rng.below(all as u64 + 1) as usize,
            _ => {
                for (name, change) in surviving_sectors(&world.unflushed, policy, &mut rng) {
                    apply(&mut files, name, &change);
                }
                0
            }
        };
        for (name, change) in &world.unflushed[..whole] {
            apply(&mut files, name, change);
        }
        files
    }
}

/// Half of the sectors, shuffled, some of them damaged.
fn surviving_sectors<'a>(
    unflushed: &'a [(String, Change)],
    policy: CrashPolicy,
    rng: &mut SimRng,
) -> Vec<(&'a str, Change)> {
    let mut survivors = Vec::new();
    for (name, change) in unflushed {
        for mut sector in change.sectors() {
            let fate = rng.below(16);
            if let Change::Write { bytes, .. } = &mut sector {
                if policy == CrashPolicy::Torn && fate == 15 {
                    bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
                } else if policy == CrashPolicy::Garbage && fate == 15 {
                    bytes.fill_with(|| rng.next_u64() as u8);
                }
            }
            if fate >= 8 {
                survivors.push((name.as_str(), sector));
            }
        }
    }
    for index in (1..survivors.len()).rev() {
        survivors.swap(index, rng.below(index as u64 + 1) as usize);
    }
    survivors
}

impl Storage for SimStorage {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        let mut world = lock(&self.world);
        if !create && !world.files.contains_key(name) {
            return Err(Error::NotFound { what: name.to_owned() });
        }
        // Storages make the name of a new file durable when they create it.
        let state = world.files.entry(name.to_owned()).or_default();
        if state.open.strong_count() > 0 {
            return Err(Error::Locked { file: name.to_owned() });
        }
        let file = Arc::new(SimFile {
            name: name.to_owned(),
            world: Arc::clone(&self.world),
        });
        state.open = Arc::downgrade(&file);
        Ok(file)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(lock(&self.world).files.contains_key(name))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut world = lock(&self.world);
        if world.files.get(name).is_some_and(|state| state.open.strong_count() > 0) {
            return Err(Error::Locked { file: name.to_owned() });
        }
        world.files.remove(name);
        Ok(())
    }
}

struct SimFile {
    name: String,
    world: Arc<Mutex<World>>,
}

impl SimFile {
    /// Counts an operation and lets it fail if it should. `change` is what it would do.
    fn begin(&self, world: &mut World, change: Option<Change>) -> Result<()> {
        let number = world.counters.operations;
        world.counters.operations += 1;
        let failed = |source: &str| Error::Io {
            context: format!("operation {number} on {}", self.name),
            source: source.to_owned(),
        };
        if world.is_cut {
            return Err(failed("the power is off"));
        }
        if world.cut_at.is_some_and(|at| number >= at) {
            world.is_cut = true;
            // The write was on its way: a crash may keep any part of it.
            self.record(world, change);
            return Err(failed("the power was cut"));
        }
        let fault = world
            .fault
            .filter(|fault| number == fault.at || (fault.forever && number > fault.at));
        let Some(fault) = fault else {
            self.record(world, change);
            return Ok(());
        };
        if let (true, Some(Change::Write { offset, mut bytes })) = (fault.partial, change) {
            bytes.truncate(bytes.len() / 2);
            self.record(world, Some(Change::Write { offset, bytes }));
        }
        Err(match fault.kind {
            FaultKind::Io => failed("injected failure"),
            FaultKind::StorageFull => Error::StorageFull {
                context: format!("operation {number} on {}", self.name),
            },
        })
    }

    fn record(&self, world: &mut World, change: Option<Change>) {
        let Some(change) = change else { return };
        if let Some(state) = world.files.get_mut(&self.name) {
            change.apply(&mut state.current);
            world.unflushed.push((self.name.clone(), change));
        }
    }
}

impl StorageFile for SimFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut world = lock(&self.world);
        world.counters.bytes_read += into.len() as u64;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(into.len());
        let part = world
            .files
            .get(&self.name)
            .and_then(|state| state.current.get(start..end));
        let part = part.ok_or_else(|| Error::Io {
            context: format!("reading {} at {offset}", self.name),
            source: "end of file".to_owned(),
        })?;
        into.copy_from_slice(part);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        let mut world = lock(&self.world);
        world.counters.writes += 1;
        world.counters.bytes_written += from.len() as u64;
        let change = Change::Write {
            offset: offset as usize,
            bytes: from.to_vec(),
        };
        self.begin(&mut world, Some(change))
    }

    fn flush(&self) -> Result<()> {
        let mut world = lock(&self.world);
        world.counters.flushes += 1;
        self.begin(&mut world, None)?;
        let (flushed, kept) = std::mem::take(&mut world.unflushed)
            .into_iter()
            .partition(|(name, _)| *name == self.name);
        world.unflushed = kept;
        let flushed: Vec<(String, Change)> = flushed;
        if let Some(state) = world.files.get_mut(&self.name) {
            for (_, change) in flushed {
                change.apply(&mut state.durable);
            }
        }
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let world = lock(&self.world);
        Ok(world
            .files
            .get(&self.name)
            .map_or(0, |state| state.current.len() as u64))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut world = lock(&self.world);
        self.begin(&mut world, Some(Change::SetLen(len as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> (SimStorage, Arc<dyn StorageFile>) {
        let storage = SimStorage::new();
        let file = storage.open("f", true).unwrap();
        file.write_at(0, &[1; 1024]).unwrap();
        file.flush().unwrap();
        file.write_at(0, &[2; 2048]).unwrap();
        (storage, file)
    }

    #[test]
    fn only_flushed_bytes_are_certain() {
        let (storage, file) = written();
        assert_eq!(storage.crash(CrashPolicy::Nothing, 0)["f"], [1; 1024]);
        assert_eq!(storage.crash(CrashPolicy::Everything, 0)["f"], [2; 2048]);
        let mixed = (0..64).any(|seed| {
            let image = &storage.crash(CrashPolicy::RandomSectors, seed)["f"];
            image
                .chunks(512)
                .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
                && image.contains(&1)
                && image.contains(&2)
        });
        assert!(mixed, "some seed keeps some sectors");
        let torn = (0..64).any(|seed| {
            let image = &storage.crash(CrashPolicy::Torn, seed)["f"];
            image
                .chunks(512)
                .any(|sector| sector.contains(&2) && !sector.iter().all(|byte| *byte == 2))
        });
        assert!(torn, "some seed tears a sector");
        let garbage = (0..64).any(|seed| {
            storage.crash(CrashPolicy::Garbage, seed)["f"]
                .iter()
                .any(|byte| *byte > 2)
        });
        assert!(garbage, "some seed writes garbage");
        assert_eq!(storage.crash(CrashPolicy::Torn, 7), storage.crash(CrashPolicy::Torn, 7));
        file.flush().unwrap();
        assert_eq!(storage.crash(CrashPolicy::Nothing, 0)["f"], [2; 2048]);
    }

    #[test]
    fn cuts_and_faults_hit_the_counted_operation() {
        let (storage, file) = written();
        assert_eq!(storage.counters().operations, 3);
        storage.set_fault(Some(Fault {
            at: 3,
            kind: FaultKind::StorageFull,
            forever: false,
            partial: true,
        }));
        assert!(matches!(file.write_at(0, &[3; 10]), Err(Error::StorageFull { .. })));
        assert_eq!(storage.files()["f"][..10], [3, 3, 3, 3, 3, 2, 2, 2, 2, 2]);
        storage.cut_at(4);
        assert!(file.flush().is_err());
        assert!(file.write_at(0, &[4]).is_err());
        assert_eq!(storage.crash(CrashPolicy::Nothing, 0)["f"], [1; 1024]);
    }
}
