//! A shadow of the files, which checks every write at once against what a recovery would need.
//!
//! It knows nothing of the engine's free space. It reads the files as docs/FORMAT.md describes them:
//! whatever superblock an opening could find, everything that the superblock reaches, and every
//! value that a record behind its log position names. A write to any of that, or to a truncated part
//! of it, is reported with the reason why it is needed, at the write, long before a crash happens to
//! show it. So are a superblock in the wrong slot, one that reaches blocks that were not flushed
//! before or are damaged, and writes to records of the log that a superblock leads to.
//!
//! Both superblocks count, the older one for the case that the newest is damaged. With
//! `MANGROVE_SHADOW=newest` only those count that a crash alone could leave as the newest.
//!
//! What is needed for other reasons than recovery has to be registered: live snapshots and staged
//! values ([`Shadow::hold_snapshot`], [`Shadow::hold_staged`]).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::block::BlockRef;
use crate::cipher::{Cipher, Key};
use crate::log::LOG_FILE;
use crate::node::{LeafCell, ValuePlace};
use crate::pages::{AREA_BYTES, DATA_FILE, Found, SLOT_BYTES, Superblock, read_all};
use crate::snapshot::Snapshot;
use crate::storage::{MemoryStorage, Storage};
use crate::transaction::StagedValue;

mod chain;
mod reach;
mod storage;

pub use storage::ShadowStorage;

use chain::Chain;
use reach::{Access, BlockId, Reach, Role, overlap};

/// What the shadow reads: the files as the running system sees them.
pub(crate) trait Files {
    /// Reads up to `len` bytes, fewer at the end of the file.
    fn read(&self, name: &str, offset: u64, len: usize) -> Vec<u8>;
}

thread_local! {
    static KEY: RefCell<Option<Key>> = const { RefCell::new(None) };
}

/// Sets the key of the encrypted databases that storages of this thread will hold. Without it their
/// shadows check nothing.
pub fn use_key(key: Option<Key>) {
    KEY.set(key);
}

/// What a shadow has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShadowCounts {
    /// Writes and truncations of the data file that were checked.
    pub writes: u64,
    /// Those among them that took units in use before: reused space.
    pub reused: u64,
    /// Superblocks of a newer state, with the log position behind it.
    pub checkpoints: u64,
    /// Superblocks that contain part of the changes behind their log position.
    pub partial: u64,
    /// Superblocks that repeat the previous one.
    pub copies: u64,
    /// Superblocks with the flag "closed".
    pub closes: u64,
    /// Beginnings of a half of the log.
    pub switches: u64,
    /// Largest number of blocks needed at once.
    pub most_blocks: u64,
}

impl ShadowCounts {
    /// Adds the counts of another shadow.
    pub fn add(&mut self, other: &Self) {
        self.writes += other.writes;
        self.reused += other.reused;
        self.checkpoints += other.checkpoints;
        self.partial += other.partial;
        self.copies += other.copies;
        self.closes += other.closes;
        self.switches += other.switches;
        self.most_blocks = self.most_blocks.max(other.most_blocks);
    }
}

/// A superblock that an opening may find.
struct Root {
    slot: u64,
    superblock: Superblock,
    cipher: Cipher,
    tops: Vec<BlockId>,
    chain: Chain,
    /// It was overwritten, but not yet flushed.
    is_going: bool,
    is_flushed: bool,
}

impl Root {
    fn describe(&self) -> String {
        format!(
            "the superblock of generation {} in slot {}",
            self.superblock.generation, self.slot
        )
    }
}

/// What the environment variable `MANGROVE_SHADOW` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Both superblocks are needed.
    Both,
    /// `newest`: the older one is not.
    Newest,
    /// `off`: nothing is checked.
    Off,
}

pub(crate) fn mode() -> Mode {
    static MODE: OnceLock<Mode> = OnceLock::new();
    *MODE.get_or_init(|| match std::env::var("MANGROVE_SHADOW").as_deref() {
        Ok("off") => Mode::Off,
        Ok("newest") => Mode::Newest,
        _ => Mode::Both,
    })
}

/// Blocks that are needed for another reason.
struct Extra {
    why: String,
    blocks: Vec<BlockId>,
}

/// The shadow of one database's files.
pub(crate) struct Shadow {
    key: Option<Key>,
    is_attached: bool,
    is_off: bool,
    unit_shift: u32,
    roots: Vec<Root>,
    reach: Reach,
    extras: BTreeMap<u64, Extra>,
    next_extra: u64,
    /// Units of the data file written since its last flush, as start and end.
    unflushed: BTreeMap<u64, u64>,
    /// End of the units that were ever written.
    end: u64,
    /// A write to the log failed and left something: the place where the log ends is open until the
    /// files are opened again.
    is_log_doubtful: bool,
    counts: ShadowCounts,
}

impl Shadow {
    /// A shadow of files that are durable as they are.
    pub(crate) fn new() -> Self {
        Self {
            key: KEY.with_borrow(Clone::clone),
            is_attached: false,
            is_off: false,
            unit_shift: 9,
            roots: Vec::new(),
            reach: Reach::default(),
            extras: BTreeMap::new(),
            next_extra: 0,
            unflushed: BTreeMap::new(),
            end: 0,
            is_log_doubtful: false,
            counts: ShadowCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> ShadowCounts {
        self.counts
    }

    /// Learns what the files hold, before the first change. Damage is nothing to report here: the
    /// opening decides what it makes of that.
    fn attach(&mut self, files: &dyn Files) {
        if self.is_attached || self.is_off {
            return;
        }
        self.is_attached = true;
        for slot in 0..2 {
            if let Some(superblock) = read_slot(files, slot) {
                let mut problems = Vec::new();
                self.add_root(files, slot, superblock, true, &mut problems);
            }
        }
        self.drop_roots();
    }

    /// Drops superblocks that are no longer on the disk, or not needed.
    fn drop_roots(&mut self) {
        let flushed = self.roots.iter().filter(|root| root.is_flushed);
        let newest = flushed.map(|root| root.superblock.generation).max();
        let is_over = |root: &Root| {
            let is_older = Some(root.superblock.generation) < newest;
            root.is_going && root.is_flushed || mode() == Mode::Newest && is_older
        };
        let over: Vec<Root> = self.roots.extract_if(.., |root| is_over(root)).collect();
        for id in over
            .into_iter()
            .flat_map(|root| root.tops.into_iter().chain(root.chain.named))
        {
            self.reach.release(id);
        }
    }

    /// Checks a write before it takes effect.
    pub(crate) fn before_write(
        &mut self,
        files: &dyn Files,
        name: &str,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), String> {
        self.attach(files);
        let end = offset + bytes.len() as u64;
        if self.is_off || bytes.is_empty() {
            return Ok(());
        }
        if name == LOG_FILE {
            return self.check_log(offset, end, |from, to| {
                // A header that is there is repeated with the half's first record after a crash.
                let there = files.read(LOG_FILE, from, (to - from) as usize);
                there == bytes[(from - offset) as usize..(to - offset) as usize]
            });
        }
        if name != DATA_FILE {
            return Ok(());
        }
        self.counts.writes += 1;
        if offset < AREA_BYTES {
            return self.check_front(offset, bytes);
        }
        let (start, end) = (offset >> self.unit_shift, end.div_ceil(1 << self.unit_shift));
        self.counts.reused += u64::from(start < self.end);
        self.check_units(start, end, "written to")
    }

    /// Learns from a write that took effect.
    pub(crate) fn after_write(&mut self, files: &dyn Files, name: &str, offset: u64, len: u64) -> Result<(), String> {
        if self.is_off || len == 0 {
            return Ok(());
        }
        if name == LOG_FILE {
            return self.advance_chains(files);
        }
        if name != DATA_FILE {
            return Ok(());
        }
        if offset >= AREA_BYTES {
            let (start, end) = (offset >> self.unit_shift, (offset + len).div_ceil(1 << self.unit_shift));
            self.end = self.end.max(end);
            add_range(&mut self.unflushed, start, end);
            return Ok(());
        }
        let mut problems = Vec::new();
        for slot in 0..2 {
            let begin = slot * SLOT_BYTES as u64;
            if offset >= begin + SLOT_BYTES as u64 || offset + len <= begin {
                continue;
            }
            let Some(superblock) = read_slot(files, slot) else {
                continue;
            };
            // One that the storage refused and kept all the same may be followed by another of its generation.
            let is_known = |root: &Root| root.slot == slot && root.superblock == superblock;
            if self.roots.iter().any(is_known) {
                continue;
            }
            for root in self.roots.iter_mut().filter(|root| root.slot == slot) {
                root.is_going = true;
            }
            self.count(&superblock);
            // A whole front at once is that of a restore, which verified it already.
            let is_whole_front = offset == 0 && len > SLOT_BYTES as u64;
            self.add_root(files, slot, superblock, is_whole_front, &mut problems);
        }
        problems.into_iter().next().map_or(Ok(()), Err)
    }

    /// Checks a truncation or extension before it takes effect.
    pub(crate) fn before_set_len(&mut self, files: &dyn Files, name: &str, len: u64) -> Result<(), String> {
        self.attach(files);
        if self.is_off {
            return Ok(());
        }
        if name == LOG_FILE {
            return self.check_log(len, u64::MAX, |_, _| false);
        }
        if name != DATA_FILE {
            return Ok(());
        }
        self.counts.writes += 1;
        self.check_units(len >> self.unit_shift, u64::MAX, "truncated")
    }

    /// Learns from a flush that succeeded.
    pub(crate) fn flushed(&mut self, name: &str) {
        if name != DATA_FILE || self.is_off {
            return;
        }
        self.unflushed.clear();
        for root in &mut self.roots {
            root.is_flushed = true;
        }
        self.drop_roots();
    }

    /// Protects what a snapshot reaches until [`release`](Self::release).
    pub(crate) fn hold_snapshot(&mut self, files: &dyn Files, snapshot: &Snapshot) -> Result<u64, String> {
        let version = snapshot.pinned();
        let mut tops = Vec::new();
        for collection in version.collections.values() {
            let owner = collection.id;
            if let Some(root) = &collection.root {
                tops.push((root.pointer, Role::Node { owner }));
            }
            for memtable in collection.layers.all() {
                for payload in memtable.entries().filter_map(|entry| entry.payload) {
                    let cell = LeafCell::decode(payload);
                    if let ValuePlace::OutOfLine(reference) = cell.place {
                        let len = cell.value_len as u64;
                        tops.push((reference, Role::Value { owner, len }));
                    }
                }
            }
        }
        self.hold(files, format!("a snapshot of version {}", version.version), &tops)
    }

    /// Protects what was written of a staged value until [`release`](Self::release).
    pub(crate) fn hold_staged(&mut self, files: &dyn Files, staged: &StagedValue) -> Result<u64, String> {
        let (owner, chunks) = staged.blocks();
        let tops: Vec<_> = chunks.iter().map(|chunk| (*chunk, Role::Chunk { owner })).collect();
        self.hold(files, "a staged value".to_owned(), &tops)
    }

    fn hold(&mut self, files: &dyn Files, why: String, tops: &[(BlockRef, Role)]) -> Result<u64, String> {
        self.attach(files);
        let number = self.next_extra;
        self.next_extra += 1;
        let newest = self.roots.iter().max_by_key(|root| root.superblock.generation);
        let Some(newest) = newest.filter(|_| !self.is_off) else {
            return Ok(number);
        };
        let access = Access {
            files,
            cipher: &newest.cipher.clone(),
            unit_shift: self.unit_shift,
            unflushed: None,
        };
        let mut problems = Vec::new();
        let mut blocks = Vec::new();
        for (reference, role) in tops {
            blocks.extend(self.reach.hold(&access, reference, *role, &mut problems));
        }
        let problem = problems.into_iter().next().map(|problem| format!("{why}: {problem}"));
        self.extras.insert(number, Extra { why, blocks });
        problem.map_or(Ok(number), Err)
    }

    /// Ends a protection.
    pub(crate) fn release(&mut self, number: u64) {
        for id in self.extras.remove(&number).into_iter().flat_map(|extra| extra.blocks) {
            self.reach.release(id);
        }
    }

    /// Adds a superblock that an opening may find. One that was `found` may be damaged, and so may
    /// what it needs: an opening passes over it, or over a subtree until somebody reads that.
    fn add_root(
        &mut self,
        files: &dyn Files,
        slot: u64,
        superblock: Superblock,
        is_found: bool,
        problems: &mut Vec<String>,
    ) {
        let cipher = match (&superblock.encryption, &self.key) {
            (None, _) => Cipher::default(),
            (Some(encryption), Some(key)) => match encryption.unlock(key, superblock.database_id) {
                Ok(cipher) => cipher,
                Err(_) => return self.turn_off(),
            },
            (Some(_), None) => return self.turn_off(),
        };
        self.unit_shift = u32::from(superblock.unit_shift);
        self.end = self.end.max(superblock.file_units);
        let access = Access {
            files,
            cipher: &cipher,
            unit_shift: self.unit_shift,
            unflushed: (!is_found).then_some(&self.unflushed),
        };
        let mut wrong = Vec::new();
        let mut tops = Vec::new();
        let catalog = superblock.catalog.map(|root| (root.pointer, Role::CatalogNode));
        let free_map = superblock.free_map.map(|reference| (reference, Role::FreeMap));
        let wanted = usize::from(catalog.is_some()) + usize::from(free_map.is_some());
        for (reference, role) in catalog.into_iter().chain(free_map) {
            tops.extend(self.reach.hold(&access, &reference, role, &mut wrong));
        }
        if is_found && tops.len() < wanted {
            for id in tops {
                self.reach.release(id);
            }
            return;
        }
        let log = if superblock.log_half_bytes == 0 {
            crate::log::Position::default()
        } else {
            superblock.log
        };
        let mut chain = Chain::new(superblock.log_half_bytes, superblock.database_id, log);
        let access = Access {
            unflushed: None,
            ..access
        };
        chain.advance(&mut self.reach, &access, true, &mut wrong);
        let root = Root {
            slot,
            superblock,
            cipher,
            tops,
            chain,
            is_going: false,
            is_flushed: is_found,
        };
        if !is_found {
            problems.extend(wrong.into_iter().map(|what| format!("{}: {what}", root.describe())));
        }
        self.roots.push(root);
        self.counts.most_blocks = self.counts.most_blocks.max(self.reach.len() as u64);
    }

    fn turn_off(&mut self) {
        self.is_off = true;
        self.roots.clear();
        self.extras.clear();
        self.reach = Reach::default();
    }

    /// Learns that a write failed which took effect at least in part.
    pub(crate) fn failed(&mut self, name: &str) {
        self.is_log_doubtful |= name == LOG_FILE;
    }

    fn advance_chains(&mut self, files: &dyn Files) -> Result<(), String> {
        if self.is_log_doubtful {
            return Ok(());
        }
        let mut problems = Vec::new();
        for root in &mut self.roots {
            let access = Access {
                files,
                cipher: &root.cipher,
                unit_shift: self.unit_shift,
                unflushed: None,
            };
            let switches = root.chain.switches;
            root.chain.advance(&mut self.reach, &access, false, &mut problems);
            if root.chain.switches > switches {
                self.counts.switches += 1;
            }
        }
        problems.into_iter().next().map_or(Ok(()), Err)
    }

    fn count(&mut self, next: &Superblock) {
        let newest = self.roots.iter().max_by_key(|root| root.superblock.generation);
        let Some(newest) = newest else { return };
        let last = &newest.superblock;
        let is_same = last.version == next.version && last.log == next.log;
        let counts = &mut self.counts;
        if next.closed {
            counts.closes += 1;
        } else if is_copy(last, next) {
            counts.copies += 1;
        } else if is_same && newest.chain.records > 0 {
            counts.partial += 1;
        } else {
            counts.checkpoints += 1;
        }
    }

    /// Units of the data file that nothing needed may lie in.
    fn check_units(&self, start: u64, end: u64, what: &str) -> Result<(), String> {
        let Some(id) = self.reach.overlapping(start, end) else {
            return Ok(());
        };
        let mut reasons: Vec<String> = Vec::new();
        for root in &self.roots {
            if root.tops.iter().any(|top| self.reach.leads(*top, id)) {
                reasons.push(format!("{} reaches it", root.describe()));
            }
            if root.chain.named.iter().any(|top| self.reach.leads(*top, id)) {
                reasons.push(format!("the log behind {} names it", root.describe()));
            }
        }
        for extra in self.extras.values() {
            if extra.blocks.iter().any(|top| self.reach.leads(*top, id)) {
                reasons.push(format!("{} needs it", extra.why));
            }
        }
        Err(format!(
            "units {start}..{end} are {what}, but {} at units {}..{} is there: {}",
            self.reach.describe(id),
            id.unit,
            id.unit + id.units,
            reasons.join(", ")
        ))
    }

    /// Bytes of the log that no superblock may lead through, but where `stays` says that nothing
    /// changes. One that was overwritten no longer counts: the first record after a close that a crash
    /// cut short goes over the log of the state before, while the superblock that replaces that state's
    /// waits for the same flush. The closed one opens meanwhile.
    fn check_log(&self, start: u64, end: u64, stays: impl Fn(u64, u64) -> bool) -> Result<(), String> {
        if self.is_log_doubtful {
            return Ok(());
        }
        for root in self.roots.iter().filter(|root| !root.is_going) {
            let needed = root
                .chain
                .bytes
                .iter()
                .map(|(from, to)| (start.max(*from), end.min(*to)));
            let mut changed = needed.filter(|(from, to)| from < to && !stays(*from, *to));
            if let Some((from, to)) = changed.next() {
                return Err(format!(
                    "bytes {from}..{to} of the log are written to or truncated, but {} leads through them",
                    root.describe()
                ));
            }
        }
        Ok(())
    }

    /// A superblock goes to the slot of its generation, which has the older one, and is newer than
    /// all others. The claim of an opening goes there, too.
    fn check_front(&self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let slot = offset / SLOT_BYTES as u64;
        let at = offset % SLOT_BYTES as u64;
        let settled = |root: &&Root| root.is_flushed && !root.is_going;
        let newest = self
            .roots
            .iter()
            .filter(settled)
            .max_by_key(|root| root.superblock.generation);
        let Some(mut last_root) = newest else {
            return Ok(());
        };
        // One that the storage refused after it had taken it is written again. The other slot states
        // the same.
        let mut there = self.roots.iter().filter(settled).filter(|root| root.slot != slot);
        if let Some(copy) = there.find(|root| is_copy(&root.superblock, &last_root.superblock)) {
            last_root = copy;
        }
        if slot == last_root.slot || at as usize + bytes.len() > SLOT_BYTES {
            return Err(format!(
                "{} bytes are written at {offset}, over {}, which is the newest",
                bytes.len(),
                last_root.describe()
            ));
        }
        if bytes.len() < SLOT_BYTES {
            // A claim, or what a storage without space took of a superblock.
            return Ok(());
        }
        let decoded = decode_slot(bytes, slot);
        let Some(next) = decoded.filter(|_| bytes[..512] == bytes[2048..2560]) else {
            return Err(format!(
                "slot {slot} is overwritten by what is no superblock in two copies"
            ));
        };
        let others = self.roots.iter().filter(|root| {
            let is_refused = root.slot == slot && is_copy(&root.superblock, &last_root.superblock);
            root.slot != slot || root.is_flushed && !is_refused
        });
        let highest = others.map(|root| root.superblock.generation).max();
        let last = &last_root.superblock;
        let is_next = next.generation % 2 == slot
            && Some(next.generation) > highest
            && next.version >= last.version
            && next.database_id == last.database_id
            && next.unit_shift == last.unit_shift
            && next.node_bytes == last.node_bytes
            && next.log_half_bytes == last.log_half_bytes;
        if is_next {
            return Ok(());
        }
        Err(format!(
            "a superblock of generation {} and version {} does not belong into slot {slot} after {} of version {}",
            next.generation,
            next.version,
            last_root.describe(),
            last.version
        ))
    }
}

/// Whether two superblocks state the same.
fn is_copy(one: &Superblock, other: &Superblock) -> bool {
    one.version == other.version
        && one.log == other.log
        && one.catalog == other.catalog
        && one.free_map == other.free_map
}

/// The superblock that a slot has, the newest of its copies.
fn read_slot(files: &dyn Files, slot: u64) -> Option<Superblock> {
    decode_slot(&files.read(DATA_FILE, slot * SLOT_BYTES as u64, SLOT_BYTES), slot)
}

fn decode_slot(bytes: &[u8], slot: u64) -> Option<Superblock> {
    let file = MemoryStorage::new().open(DATA_FILE, true).ok()?;
    file.write_at(slot * SLOT_BYTES as u64, bytes).ok()?;
    file.set_len(AREA_BYTES).ok()?;
    match read_all(&*file, DATA_FILE) {
        Ok(Found::Superblocks(list)) => list.into_iter().next(),
        _ => None,
    }
}

/// Adds a range, and joins it with those that it touches.
fn add_range(ranges: &mut BTreeMap<u64, u64>, mut start: u64, mut end: u64) {
    while let Some((&from, &to)) = ranges.range(..=end).next_back().filter(|(_, to)| **to >= start) {
        ranges.remove(&from);
        start = start.min(from);
        end = end.max(to);
    }
    debug_assert!(!overlap(ranges, start, end));
    ranges.insert(start, end);
}

/// Reports what a shadow found. Not while the thread unwinds from an earlier report.
pub(crate) fn report(found: Result<(), String>) {
    if let Err(violation) = found
        && !std::thread::panicking()
    {
        panic!("shadow: {violation}");
    }
}
