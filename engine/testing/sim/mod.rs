//! A simulated storage that loses, tears and fails writes: the test double behind all crash and
//! fault tests.
//!
//! Each file has a durable image and the system's current one. Writes go to the current image and
//! to one ordered list of unflushed operations over all files; a flush of a file makes its part of
//! the list durable. [`SimStorage::crash`] then builds what a power failure could leave: any subset
//! of the unflushed 512-byte sectors, in any order, torn or replaced by garbage. The seed
//! determines everything.
//!
//! Operations are counted from 0: file creations, writes, flushes and length changes. Reads are
//! counted separately. A file whose creation returned is durable, as the contract of
//! [`Storage::open`] requires.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::storage::{Storage, StorageFile};
use crate::testing::shadow::{self, Files, Shadow, ShadowCounts, report};
use crate::transaction::StagedValue;

const SECTOR_BYTES: usize = 512;

/// What happens to unflushed operations in a power failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashPolicy {
    /// None of them took effect.
    Nothing,
    /// All of them took effect.
    Everything,
    /// A prefix of them took effect.
    Prefix,
    /// Any of their sectors took effect, in any order.
    RandomSectors,
    /// As `RandomSectors`, and some sectors are torn.
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

/// Kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimOperation {
    /// Creates a file.
    Create,
    /// Writes at this offset.
    Write(u64),
    /// Changes the length.
    SetLen,
    /// Flushes.
    Flush,
}

/// The error that an injected fault reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// [`Error::Io`].
    Io,
    /// [`Error::StorageFull`].
    StorageFull,
}

/// What a failing write leaves in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// None of it.
    Nothing,
    /// Its first half.
    Half,
    /// All of it: the failure has another cause, or comes too late.
    All,
}

/// Operations that a fault can hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All operations.
    All,
    /// Writes.
    Writes,
    /// Writes to the file with this name.
    WritesOf(&'static str),
}

/// An injected failure.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Index of the first operation that may fail.
    pub at: u64,
    /// The error reported.
    pub kind: FaultKind,
    /// Number of operations that fail, from that one on.
    pub times: u64,
    /// Operations that can fail; others in between succeed.
    pub scope: Scope,
    /// What a failing write leaves in the file.
    pub keeps: Keeps,
    /// Whether a failing flush discards what it should have written, while readers still see it. A
    /// system that marks pages clean after a failed flush does so, and a later flush then succeeds
    /// without them.
    pub forgets: bool,
}

impl Fault {
    /// Fails only operation `at`, which has no effect.
    #[must_use]
    pub fn once(at: u64, kind: FaultKind) -> Self {
        Self {
            at,
            kind,
            times: 1,
            scope: Scope::All,
            keeps: Keeps::Nothing,
            forgets: false,
        }
    }

    /// Fails operation `at` and all later ones, which have no effect.
    #[must_use]
    pub fn from(at: u64, kind: FaultKind) -> Self {
        Self {
            times: u64::MAX,
            ..Self::once(at, kind)
        }
    }

    /// Whether this operation fails; counts it if so.
    fn hits(&mut self, number: u64, name: &str, operation: Option<SimOperation>) -> bool {
        let is_write = matches!(operation, Some(SimOperation::Write(_)));
        let is_meant = match self.scope {
            Scope::All => true,
            Scope::Writes => is_write,
            Scope::WritesOf(file) => is_write && file == name,
        };
        let hits = number >= self.at && self.times > 0 && is_meant;
        self.times -= u64::from(hits);
        hits
    }

    fn error(&self, context: String) -> Error {
        match self.kind {
            FaultKind::Io => Error::io(context, "injected failure"),
            FaultKind::StorageFull => Error::StorageFull {
                context: context.into(),
            },
        }
    }
}

/// Operations requested from the storage so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimCounters {
    /// Creations, writes, flushes and length changes.
    pub operations: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
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
    /// Creates a generator from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which must not be 0.
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

    /// Splits the change at sector boundaries.
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
    /// Power failed while the file was being created.
    is_doubtful: bool,
}

impl Files for BTreeMap<String, FileState> {
    fn read(&self, name: &str, offset: u64, len: usize) -> Vec<u8> {
        let current = self.get(name).map_or(&[][..], |state| &state.current);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(current.len());
        current[start..current.len().min(start.saturating_add(len))].to_vec()
    }
}

#[derive(Default)]
struct World {
    files: BTreeMap<String, FileState>,
    /// Checks each change, where it is on.
    shadow: Option<Box<Shadow>>,
    unflushed: Vec<(String, Change)>,
    counters: SimCounters,
    fault: Option<Fault>,
    read_fault: Option<Fault>,
    first_failed: Option<SimOperation>,
    /// Limit on the total bytes of all files.
    capacity: Option<u64>,
    cut_at: Option<u64>,
    is_cut: bool,
}

/// Outcome of an operation.
enum Verdict {
    Works,
    /// Power fails during the operation: a crash may keep any part of it.
    IsCut(Error),
    /// The power is off.
    Off(Error),
    Fails(Fault, Error),
}

impl Verdict {
    fn into_result(self) -> Result<()> {
        match self {
            Self::Works => Ok(()),
            Self::IsCut(error) | Self::Off(error) | Self::Fails(_, error) => Err(error),
        }
    }
}

impl World {
    /// Counts an operation on `name` and decides its outcome.
    fn judge(&mut self, name: &str, operation: SimOperation) -> Verdict {
        let number = self.counters.operations;
        self.counters.operations += 1;
        let context = format!("operation {number} on {name}");
        if self.is_cut {
            return Verdict::Off(Error::io(context, "the power is off"));
        }
        if self.cut_at.is_some_and(|at| number >= at) {
            self.is_cut = true;
            return Verdict::IsCut(Error::io(context, "the power was cut"));
        }
        if let Some(fault) = &mut self.fault
            && fault.hits(number, name, Some(operation))
        {
            self.first_failed.get_or_insert(operation);
            return Verdict::Fails(*fault, fault.error(context));
        }
        Verdict::Works
    }

    /// Returns the longest possible length of a file, if the change would exceed it.
    fn room(&self, name: &str, change: &Change) -> Option<usize> {
        let capacity = self.capacity?;
        let len = self.files.get(name).map_or(0, |state| state.current.len());
        let end = match change {
            Change::Write { offset, bytes } => offset + bytes.len(),
            Change::SetLen(len) => *len,
        };
        let all: usize = self.files.values().map(|state| state.current.len()).sum();
        let room = (len + usize::try_from(capacity).unwrap_or(usize::MAX))
            .saturating_sub(all)
            .max(len);
        (end > room).then_some(room)
    }

    /// Applies a change to the current image.
    fn record(&mut self, name: &str, change: Change) {
        let Self { files, shadow, .. } = self;
        if let Some(shadow) = shadow {
            report(match &change {
                Change::Write { offset, bytes } => shadow.before_write(files, name, *offset as u64, bytes),
                Change::SetLen(len) => shadow.before_set_len(files, name, *len as u64),
            });
        }
        let Some(state) = files.get_mut(name) else {
            return;
        };
        change.apply(&mut state.current);
        if let (Some(shadow), Change::Write { offset, bytes }) = (shadow, &change) {
            report(shadow.after_write(files, name, *offset as u64, bytes.len() as u64));
        }
        self.unflushed.push((name.to_owned(), change));
    }

    /// Removes and returns the unflushed changes of a file.
    fn take_unflushed(&mut self, name: &str) -> impl Iterator<Item = Change> + use<> {
        let (taken, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unflushed)
            .into_iter()
            .partition(|(other, _)| other == name);
        self.unflushed = kept;
        taken.into_iter().map(|(_, change)| change)
    }
}

/// An in-memory storage that can fail and crash. Clones share one world.
///
/// A [shadow](crate::testing::shadow) checks each change; a violation panics. The environment
/// variable `MANGROVE_SHADOW=off` does without it.
#[derive(Clone, Default)]
pub struct SimStorage {
    world: Arc<Mutex<World>>,
}

/// Keeps the shadow from letting space be reused. Drop it before what it was made of.
pub struct Held {
    world: Arc<Mutex<World>>,
    number: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(shadow) = &mut lock(&self.world).shadow {
            shadow.release(self.number);
        }
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimStorage {
    /// Creates an empty storage without faults.
    #[must_use]
    pub fn new() -> Self {
        let storage = Self::default();
        if shadow::mode() != shadow::Mode::Off {
            lock(&storage.world).shadow = Some(Box::new(Shadow::new()));
        }
        storage
    }

    /// The same without a shadow, for databases that are damaged on purpose, and where it would cost
    /// too much.
    #[must_use]
    pub fn without_shadow(self) -> Self {
        lock(&self.world).shadow = None;
        self
    }

    /// A file that exists, to be written to beside the database that has it open.
    #[must_use]
    pub fn writer(&self, name: &str) -> Option<Arc<dyn StorageFile>> {
        let is_there = lock(&self.world).files.contains_key(name);
        let file = SimFile {
            name: name.to_owned(),
            world: Arc::clone(&self.world),
        };
        is_there.then(|| Arc::new(file) as Arc<dyn StorageFile>)
    }

    /// What the shadow has seen.
    #[must_use]
    pub fn shadow_counts(&self) -> ShadowCounts {
        let world = lock(&self.world);
        world.shadow.as_ref().map(|shadow| shadow.counts()).unwrap_or_default()
    }

    /// Lets the shadow protect what a snapshot reaches.
    #[must_use]
    pub fn hold_snapshot(&self, snapshot: &Snapshot) -> Held {
        self.hold(|shadow, files| shadow.hold_snapshot(files, snapshot))
    }

    /// Lets the shadow protect what was written of a staged value by now.
    #[must_use]
    pub fn hold_staged(&self, staged: &StagedValue) -> Held {
        self.hold(|shadow, files| shadow.hold_staged(files, staged))
    }

    fn hold(&self, hold: impl FnOnce(&mut Shadow, &dyn Files) -> std::result::Result<u64, String>) -> Held {
        let mut world = lock(&self.world);
        let World { files, shadow, .. } = &mut *world;
        let held = shadow.as_mut().map_or(Ok(0), |shadow| hold(shadow, files));
        let number = held.unwrap_or_else(|violation| panic!("shadow: {violation}"));
        Held {
            world: Arc::clone(&self.world),
            number,
        }
    }

    /// Creates a storage with the given files, all durable.
    #[must_use]
    pub fn from_files(files: BTreeMap<String, Vec<u8>>) -> Self {
        let storage = Self::new();
        lock(&storage.world).files = files
            .into_iter()
            .map(|(name, bytes)| {
                let state = FileState {
                    durable: bytes.clone(),
                    current: bytes,
                    ..FileState::default()
                };
                (name, state)
            })
            .collect();
        storage
    }

    /// Returns the files as a reader of the running system sees them.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let world = lock(&self.world);
        world
            .files
            .iter()
            .map(|(name, state)| (name.clone(), state.current.clone()))
            .collect()
    }

    /// Counters since the storage was created.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        lock(&self.world).counters
    }

    /// Limits the total bytes of all files, or removes the limit. A change that would exceed it
    /// fails with [`Error::StorageFull`], after as much of a write as there is room for.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        lock(&self.world).capacity = bytes;
    }

    /// Cuts the power at operation `at`: it and all later ones fail.
    pub fn cut_at(&self, at: u64) {
        lock(&self.world).cut_at = Some(at);
    }

    /// Injects a failure, or removes it.
    pub fn set_fault(&self, fault: Option<Fault>) {
        lock(&self.world).fault = fault;
    }

    /// The first operation that an injected failure hit.
    #[must_use]
    pub fn first_failed(&self) -> Option<SimOperation> {
        lock(&self.world).first_failed
    }

    /// Injects a failure of reads, counted by [`SimCounters::reads`], or removes it.
    pub fn set_read_fault(&self, fault: Option<Fault>) {
        lock(&self.world).read_fault = fault;
    }

    /// Returns the files as a power failure now could leave them.
    #[must_use]
    pub fn crash(&self, policy: CrashPolicy, seed: u64) -> BTreeMap<String, Vec<u8>> {
        let world = lock(&self.world);
        let mut rng = SimRng::new(seed ^ (policy as u64) << 56);
        let mut files = BTreeMap::new();
        for (name, state) in &world.files {
            let is_there = match policy {
                _ if !state.is_doubtful => true,
                CrashPolicy::Nothing => false,
                CrashPolicy::Everything => true,
                _ => rng.below(2) == 0,
            };
            if is_there {
                files.insert(name.clone(), state.durable.clone());
            }
        }
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
        if !matches!(
            policy,
            CrashPolicy::Nothing | CrashPolicy::Everything | CrashPolicy::Prefix
        ) {
            keep_lengths(&world, &mut files, &mut rng);
        }
        files
    }
}

/// A file system may have extended a file without writing the new content.
fn keep_lengths(world: &World, files: &mut BTreeMap<String, Vec<u8>>, rng: &mut SimRng) {
    for (name, image) in files {
        let len = world.files[name].current.len();
        if len > image.len() && rng.below(2) == 0 {
            image.resize(len, 0);
        }
    }
}

/// Returns about half of the sectors, shuffled, some of them damaged.
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
            return Err(Error::NotFound { what: name.into() });
        }
        if !world.files.contains_key(name) {
            let verdict = world.judge(name, SimOperation::Create);
            let is_doubtful = matches!(verdict, Verdict::IsCut(_));
            if is_doubtful || matches!(verdict, Verdict::Works) {
                let state = FileState {
                    is_doubtful,
                    ..FileState::default()
                };
                world.files.insert(name.to_owned(), state);
            }
            verdict.into_result()?;
        }
        let state = world.files.get_mut(name).expect("it was there or has been created");
        if state.open.strong_count() > 0 {
            return Err(Error::Locked { file: name.into() });
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
            return Err(Error::Locked { file: name.into() });
        }
        world.take_unflushed(name).for_each(drop);
        world.files.remove(name);
        Ok(())
    }
}

struct SimFile {
    name: String,
    world: Arc<Mutex<World>>,
}

impl SimFile {
    /// Counts a change and applies it unless it fails.
    fn change(&self, world: &mut World, change: Change) -> Result<()> {
        let operation = match &change {
            Change::Write { offset, .. } => SimOperation::Write(*offset as u64),
            Change::SetLen(_) => SimOperation::SetLen,
        };
        let verdict = world.judge(&self.name, operation);
        if matches!(verdict, Verdict::Works)
            && let Some(room) = world.room(&self.name, &change)
        {
            if let Change::Write { offset, mut bytes } = change {
                bytes.truncate(room.saturating_sub(offset));
                world.record(&self.name, Change::Write { offset, bytes });
            }
            let context = format!("writing {}, which has room for {room} bytes", self.name);
            return Err(Error::StorageFull {
                context: context.into(),
            });
        }
        match (&verdict, change) {
            (Verdict::Works | Verdict::IsCut(_), change) => world.record(&self.name, change),
            (Verdict::Fails(Fault { keeps, .. }, _), Change::Write { offset, mut bytes })
                if *keeps != Keeps::Nothing =>
            {
                if *keeps == Keeps::Half {
                    bytes.truncate(bytes.len() / 2);
                }
                if let Some(shadow) = &mut world.shadow {
                    shadow.failed(&self.name);
                }
                world.record(&self.name, Change::Write { offset, bytes });
            }
            _ => {}
        }
        verdict.into_result()
    }
}

impl StorageFile for SimFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut world = lock(&self.world);
        let number = world.counters.reads;
        world.counters.reads += 1;
        world.counters.bytes_read += into.len() as u64;
        if let Some(fault) = &mut world.read_fault
            && fault.hits(number, &self.name, None)
        {
            return Err(fault.error(format!("read {number} of {}", self.name)));
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(into.len());
        let part = world
            .files
            .get(&self.name)
            .and_then(|state| state.current.get(start..end));
        let part = part.ok_or_else(|| Error::io(format!("reading {} at {offset}", self.name), "end of file"))?;
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
        self.change(&mut world, change)
    }

    fn flush(&self) -> Result<()> {
        let mut world = lock(&self.world);
        world.counters.flushes += 1;
        let verdict = world.judge(&self.name, SimOperation::Flush);
        match &verdict {
            Verdict::Works => {
                let flushed = world.take_unflushed(&self.name);
                if let Some(state) = world.files.get_mut(&self.name) {
                    flushed.for_each(|change| change.apply(&mut state.durable));
                }
                if let Some(shadow) = &mut world.shadow {
                    shadow.flushed(&self.name);
                }
            }
            Verdict::Fails(Fault { forgets: true, .. }, _) => world.take_unflushed(&self.name).for_each(drop),
            _ => {}
        }
        verdict.into_result()
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
        self.change(&mut world, Change::SetLen(len as usize))
    }
}

#[cfg(test)]
mod tests;
