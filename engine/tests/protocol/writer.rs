//! The writer, with the names that its steps have in the engine, and recovery.

use super::disk::{
    COLLECTIONS, Disk, Files, HALF, HINT, HalfHeader, KEYS, LogRecord, Position, REMOVED, Records, Roots, Set,
    Superblock, Value, extents_of, node, roots_of,
};
use super::{Config, Release, Rules};

/// Recovery found damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Corrupt;

/// The log as seen by its writer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Log {
    pub at: Position,
    pub came_from: Position,
    pub unbegun: bool,
    pub checkpoint_first: bool,
}

impl Log {
    pub(super) fn position(&self) -> Position {
        if self.unbegun { self.came_from } else { self.at }
    }

    pub(super) fn needs_only_this_half(&self, position: Position) -> bool {
        position.salt == self.at.salt || position == self.came_from
    }
}

/// Difference between the space of a frozen version and that of the newest one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct FrozenSpace {
    pub retired: Set,
    pub taken: Set,
}

/// A frozen version being merged, as of the last checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Merging {
    pub version: u8,
    pub roots: Roots,
    pub records: Records,
    /// What is not merged yet.
    pub left: Records,
    pub exists: u8,
    /// Collections that a partial checkpoint may hold in part.
    pub partial: u8,
    /// Log position behind the frozen version.
    pub log: Position,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    Partial,
    Whole,
    Closing,
    /// The commit of a transaction that the log does not take.
    Large,
}

/// A checkpoint whose superblock was written and not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Sealing {
    pub kind: Kind,
    superblock: Superblock,
    roots: Roots,
    records: Records,
    left: Records,
    /// Blocks of values that the log names and that the trees no longer reach.
    kept: Set,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Writer {
    pub superblock: Superblock,
    pub older_log: Option<Position>,
    pub version: u8,
    pub roots: Roots,
    pub records: Records,
    pub active: Records,
    pub frozen: Records,
    pub exists: u8,
    emptied_at: [u8; COLLECTIONS],
    pub free: Set,
    pub quarantine: Set,
    pub retired: Set,
    pub frozen_space: Option<FrozenSpace>,
    pub merging: Option<Merging>,
    pub sealing: Option<Sealing>,
    /// The newest superblock is that of a checkpoint of this opening.
    has_sealed: bool,
    /// A second superblock was written and not flushed; `true` if the log is emptied after it.
    pub overwriting: Option<bool>,
    pub log: Log,
    /// Salt of the half that was flushed last, and how many of its records were.
    flushed: (u8, u8),
}

/// A merge of memtables into the trees.
struct Merge {
    roots: Roots,
    records: Records,
    retired: Set,
    kept: Set,
    touched: u8,
}

impl Merge {
    fn put(&mut self, config: &Config, key: usize, entry: Value, keeps_behind: Option<u8>) {
        let former = std::mem::take(&mut self.records[key]);
        if keeps_behind.is_some_and(|version| former.version > version) {
            self.kept |= former.extents();
        } else {
            self.retired |= former.extents();
        }
        if entry.id != REMOVED {
            self.records[key] = entry;
        }
        self.touched |= 1 << config.collections[key];
    }

    /// Writes the nodes; `None` without room for them.
    fn write(&mut self, config: &Config, free: &mut Set, disk: &mut Disk) -> Option<()> {
        for collection in (0..COLLECTIONS).filter(|collection| self.touched & 1 << collection != 0) {
            if let Some(former) = self.roots[collection].take() {
                self.retired |= 1 << former;
            }
            if let Some(content) = node_of(config, collection, &self.records) {
                let extent = allocate(free)?;
                disk.cached.blocks[usize::from(extent)] = content;
                self.roots[collection] = Some(extent);
            }
        }
        Some(())
    }
}

/// Content of a collection's node; `None` if the collection is empty.
pub(super) fn node_of(config: &Config, collection: usize, records: &Records) -> Option<u16> {
    let mut own = [Value::default(); KEYS];
    for key in config.keys(collection) {
        own[key] = records[key];
    }
    own.iter().any(|value| value.is_some()).then(|| node(collection, &own))
}

/// Takes the first free extent.
pub(super) fn allocate(free: &mut Set) -> Option<u8> {
    let extent = free.trailing_zeros() as u8;
    (*free != 0).then(|| {
        *free &= *free - 1;
        extent
    })
}

impl Writer {
    fn slot(&self) -> usize {
        usize::from((self.superblock.generation + 1) % 2)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.overwriting.is_some()
            || self
                .sealing
                .is_some_and(|sealing| matches!(sealing.kind, Kind::Closing | Kind::Large))
    }

    /// The generations that it knows.
    pub(super) fn generations(&mut self) -> impl Iterator<Item = &mut u8> {
        let sealing = self
            .sealing
            .iter_mut()
            .map(|sealing| &mut sealing.superblock.generation);
        sealing.chain([&mut self.superblock.generation])
    }

    /// What a reader of the newest version finds.
    pub(super) fn visible(&self) -> [u8; KEYS] {
        std::array::from_fn(|key| {
            let layers = [self.active[key], self.frozen[key], self.records[key]];
            let found = layers.into_iter().find(|value| value.is_some()).unwrap_or_default();
            if found.id == REMOVED { 0 } else { found.id }
        })
    }

    /// All that the newest version or the frozen one reaches.
    pub(super) fn used(&self) -> Set {
        let memtables = extents_of(&self.active) | extents_of(&self.frozen);
        roots_of(self.roots) | extents_of(&self.records) | memtables
    }

    /// What is neither free nor reached.
    pub(super) fn kept(&self) -> Set {
        self.quarantine | self.retired | self.frozen_space.map_or(0, |frozen| frozen.retired)
    }

    /// Changes the active memtable.
    fn change(&mut self, key: usize, entry: Value) {
        self.retired |= self.active[key].extents();
        self.active[key] = entry;
    }

    fn put_hint(&mut self, config: &Config) {
        self.exists |= 1 << config.collections[HINT];
        self.change(HINT, Value::HINT);
    }

    /// Removes all records of a collection.
    fn empty(&mut self, config: &Config, collection: usize) {
        if config.keys(collection).any(|key| self.frozen[key].is_some()) {
            self.thaw();
        }
        for key in config.keys(collection) {
            self.change(key, Value::default());
            self.retired |= std::mem::take(&mut self.records[key]).extents();
        }
        if let Some(root) = self.roots[collection].take() {
            self.retired |= 1 << root;
        }
        self.emptied_at[collection] = self.version + 1;
    }

    /// Abandons the merge.
    fn thaw(&mut self) {
        self.merging = None;
        if let Some(frozen) = self.frozen_space.take() {
            self.retired |= frozen.retired;
        }
        for key in 0..KEYS {
            let frozen = std::mem::take(&mut self.frozen[key]);
            if self.active[key].is_some() {
                self.retired |= frozen.extents();
            } else {
                self.active[key] = frozen;
            }
        }
    }

    /// Writes the header of the log's first half, and flushes it.
    fn begin_half(&mut self, disk: &mut Disk) {
        self.append_header(disk);
        disk.flush_log();
    }

    fn append_header(&mut self, disk: &mut Disk) {
        if std::mem::take(&mut self.log.unbegun) {
            disk.cached.halves[usize::from(self.log.at.half)].header = Some(HalfHeader {
                salt: self.log.at.salt,
                from: self.log.came_from,
            });
        }
    }

    /// Marks the database as open before its log gets a record.
    fn begin_log(&mut self, rules: &Rules, disk: &mut Disk) {
        if !self.superblock.closed {
            return;
        }
        if rules.begins_half_first {
            self.begin_half(disk);
        }
        let slot = self.slot();
        self.older_log = Some(self.superblock.log);
        self.superblock.generation += 1;
        self.superblock.closed = false;
        self.has_sealed = false;
        disk.cached.slots[slot] = Some(self.superblock);
    }

    fn append(&mut self, disk: &mut Disk, crc: u8, version: u8, changes: Records, clears: u8, is_marker: bool) {
        self.append_header(disk);
        let at = &mut self.log.at;
        disk.cached.halves[usize::from(at.half)].records[usize::from(at.index)] = Some(LogRecord {
            crc,
            previous_crc: at.crc,
            salt: at.salt,
            version,
            flushed_to: if self.flushed.0 == at.salt { self.flushed.1 } else { 0 },
            clears,
            changes,
            is_marker,
        });
        at.index += 1;
        at.crc = crc;
    }

    /// A commit through the log. `changes` lack places and versions. `None` if it has no room.
    pub(super) fn commit(
        &mut self,
        config: &Config,
        rules: &Rules,
        disk: &mut Disk,
        crc: u8,
        changes: Records,
        clears: u8,
    ) -> Option<()> {
        let mut changes = changes;
        for collection in (0..COLLECTIONS).filter(|collection| clears & 1 << collection != 0) {
            let thaws = config.keys(collection).any(|key| self.frozen[key].is_some());
            if thaws && self.sealing.is_some() {
                return None;
            }
            self.empty(config, collection);
        }
        let taken = self.write_values(disk, &mut changes)?;
        self.begin_log(rules, disk);
        self.append(disk, crc, self.version + 1, changes, clears, false);
        for (key, change) in changes.into_iter().enumerate().filter(|(_, change)| change.is_some()) {
            self.change(key, change);
            if change.expires {
                self.put_hint(config);
            }
        }
        if let Some(frozen) = &mut self.frozen_space {
            frozen.taken |= taken;
        }
        self.version += 1;
        Some(())
    }

    fn write_values(&mut self, disk: &mut Disk, changes: &mut Records) -> Option<Set> {
        let mut taken = 0;
        for change in changes
            .iter_mut()
            .filter(|change| change.is_some() && change.id != REMOVED)
        {
            change.version = self.version + 1;
            if change.is_out_of_line() {
                change.extent = allocate(&mut self.free)?;
                disk.cached.blocks[usize::from(change.extent)] = change.content();
                taken |= change.extents();
            }
        }
        Some(taken)
    }

    /// Flushes everything appended so far.
    pub(super) fn flush_appended(&mut self, disk: &mut Disk) {
        disk.flush_data();
        disk.flush_log();
        self.flushed = (self.log.at.salt, self.log.at.index);
    }

    /// Whether the log should be switched to its other half, and the newest superblock allows it.
    fn should_switch(&self, config: &Config) -> bool {
        let log = &self.log;
        let is_full = !log.unbegun && log.at.index >= config.switch_at;
        is_full && log.needs_only_this_half(self.superblock.log)
    }

    /// Whether the older superblock allows it, too.
    fn older_allows_switch(&self) -> bool {
        self.older_log
            .is_some_and(|position| self.log.needs_only_this_half(position))
    }

    pub(super) fn can_switch(&self, config: &Config) -> bool {
        self.should_switch(config) && self.older_allows_switch()
    }

    /// Whether overwriting the older superblock frees something, or lets the log switch.
    pub(super) fn wants_overwrite(&self, config: &Config) -> bool {
        let switches = self.merging.is_none() && self.should_switch(config) && !self.older_allows_switch();
        self.has_sealed || switches
    }

    pub(super) fn switch_log(&mut self, disk: &mut Disk, salt: u8) {
        self.flush_appended(disk);
        self.log.came_from = self.log.at;
        self.log.unbegun = true;
        self.log.at = Position::first(1 - self.log.at.half, salt);
    }

    /// Freezes the newest version.
    pub(super) fn freeze(&mut self, config: &Config) {
        self.frozen = std::mem::take(&mut self.active);
        self.frozen_space = Some(FrozenSpace {
            retired: std::mem::take(&mut self.retired),
            taken: 0,
        });
        let durable = |collection: &usize| {
            self.superblock.exists & 1 << *collection != 0 && self.emptied_at[*collection] <= self.superblock.version
        };
        let partial = (0..COLLECTIONS).filter(|_| !self.log.checkpoint_first).filter(durable);
        self.merging = Some(Merging {
            version: self.version,
            roots: self.roots,
            records: self.records,
            left: self.frozen,
            exists: self.exists,
            partial: partial.fold(0, |set, collection| set | 1 << collection),
            log: self.log.position(),
        });
        debug_assert!(config.keys(0).next().is_some());
    }

    /// Merges the next round and writes its checkpoint up to the superblock, which is not flushed.
    /// A round has one key, or goes on while that completes a collection. `None` if there is no room
    /// or, for a partial one, no round left but the last. Closing gives the log a new `salt`.
    pub(super) fn seal(&mut self, config: &Config, rules: &Rules, disk: &mut Disk, kind: Kind, salt: u8) -> Option<()> {
        let merging = self.merging?;
        let is_partial = kind == Kind::Partial;
        let mut left = merging.left;
        let mut merge = Merge {
            roots: merging.roots,
            records: merging.records,
            retired: 0,
            kept: 0,
            touched: 0,
        };
        let keeps_behind = (is_partial && rules.keeps_named).then_some(self.superblock.version);
        let is_partly = |key: usize| merging.partial & 1 << config.collections[key] != 0;
        loop {
            let next = (0..KEYS).filter(|&key| left[key].is_some());
            let Some(key) = next.min_by_key(|&key| (!is_partly(key), config.collections[key], key)) else {
                break;
            };
            if is_partial && !is_partly(key) {
                return None;
            }
            merge.put(config, key, std::mem::take(&mut left[key]), keeps_behind);
            let collection = config.collections[key];
            if is_partial && config.keys(collection).any(|key| left[key].is_some()) {
                break;
            }
        }
        if is_partial && left.iter().all(|value| !value.is_some()) {
            return None;
        }
        merge.write(config, &mut self.free, disk)?;
        let space = self.frozen_space.unwrap_or_default();
        let mut superblock = self.superblock;
        superblock.free = self.free | self.quarantine | space.taken;
        superblock.leaving = merge.retired;
        if is_partial {
            for collection in (0..COLLECTIONS).filter(|collection| merging.partial & 1 << collection != 0) {
                superblock.roots[collection] = merge.roots[collection];
                for key in config.keys(collection) {
                    superblock.records[key] = merge.records[key];
                }
            }
            superblock.reaches = merging.version;
        } else {
            superblock.roots = merge.roots;
            superblock.records = merge.records;
            superblock.exists = merging.exists;
            superblock.version = merging.version;
            superblock.reaches = 0;
            superblock.leaving |= space.retired;
            superblock.log = merging.log;
        }
        if kind == Kind::Closing {
            superblock.log = Position::first(0, salt);
        } else {
            self.begin_unclosed(rules, disk);
        }
        self.write_superblock(disk, kind, superblock, &merge, left, is_partial || rules.flushes_log);
        Some(())
    }

    /// A superblock without the flag "closed" needs a half with a header.
    fn begin_unclosed(&mut self, rules: &Rules, disk: &mut Disk) {
        if rules.begins_half_first && self.log.unbegun && self.log.came_from == self.log.at {
            self.begin_half(disk);
        }
    }

    fn write_superblock(
        &mut self,
        disk: &mut Disk,
        kind: Kind,
        superblock: Superblock,
        merge: &Merge,
        left: Records,
        flushes_log: bool,
    ) {
        if flushes_log {
            self.flush_appended(disk);
        }
        disk.flush_data();
        let slot = self.slot();
        let superblock = Superblock {
            generation: self.superblock.generation + 1,
            closed: kind == Kind::Closing,
            ..superblock
        };
        disk.cached.slots[slot] = Some(superblock);
        self.sealing = Some(Sealing {
            kind,
            superblock,
            roots: merge.roots,
            records: merge.records,
            left,
            kept: merge.kept,
        });
    }

    /// A commit that is a checkpoint, up to the superblock. `None` if there is no room.
    pub(super) fn commit_large(
        &mut self,
        config: &Config,
        rules: &Rules,
        disk: &mut Disk,
        changes: Records,
    ) -> Option<()> {
        let mut changes = changes;
        self.write_values(disk, &mut changes)?;
        let mut merge = Merge {
            roots: self.roots,
            records: self.records,
            retired: 0,
            kept: 0,
            touched: 0,
        };
        for layer in [self.active, changes] {
            for (key, entry) in layer.into_iter().enumerate().filter(|(_, entry)| entry.is_some()) {
                merge.put(config, key, entry, None);
            }
        }
        merge.write(config, &mut self.free, disk)?;
        self.begin_unclosed(rules, disk);
        let superblock = Superblock {
            version: self.version + 1,
            reaches: 0,
            log: self.log.position(),
            roots: merge.roots,
            records: merge.records,
            exists: self.exists,
            free: self.free | self.quarantine,
            leaving: self.retired | merge.retired,
            ..self.superblock
        };
        self.write_superblock(
            disk,
            Kind::Large,
            superblock,
            &merge,
            Records::default(),
            rules.flushes_log,
        );
        Some(())
    }

    /// Flushes the superblock of a checkpoint and adopts it. `crc` is that of a marker.
    pub(super) fn end_seal(&mut self, config: &Config, disk: &mut Disk, crc: u8) {
        let Some(sealing) = self.sealing.take() else { return };
        disk.flush_data();
        self.older_log = Some(self.superblock.log);
        self.superblock = sealing.superblock;
        self.has_sealed = true;
        self.free |= std::mem::replace(&mut self.quarantine, sealing.superblock.leaving);
        self.log.checkpoint_first = false;
        if sealing.kind == Kind::Large {
            self.roots = sealing.roots;
            self.records = sealing.records;
            self.active = Records::default();
            self.retired = 0;
            self.version += 1;
            if usize::from(self.log.at.index) < HALF {
                self.append(disk, crc, self.version, Records::default(), 0, true);
            }
            return;
        }
        for collection in 0..COLLECTIONS {
            if config.keys(collection).any(|key| self.frozen[key].is_some()) {
                self.roots[collection] = sealing.roots[collection];
                for key in config.keys(collection) {
                    self.records[key] = sealing.records[key];
                    self.frozen[key] = sealing.left[key];
                }
            }
        }
        if sealing.kind == Kind::Partial {
            if let Some(frozen) = &mut self.frozen_space {
                frozen.retired |= sealing.kept;
            }
            if let Some(merging) = &mut self.merging {
                merging.roots = sealing.roots;
                merging.records = sealing.records;
                merging.left = sealing.left;
            }
            return;
        }
        self.frozen_space = None;
        self.merging = None;
        if sealing.kind == Kind::Closing {
            self.overwrite_older(disk, true);
        }
    }

    /// Writes the newest superblock once more, over the older one.
    pub(super) fn overwrite_older(&mut self, disk: &mut Disk, closing: bool) {
        let slot = self.slot();
        self.older_log = None;
        disk.cached.slots[slot] = Some(Superblock {
            generation: self.superblock.generation + 1,
            ..self.superblock
        });
        self.overwriting = Some(closing);
    }

    /// Flushes the overwritten superblock; returns whether the database is closed.
    pub(super) fn end_overwrite(&mut self, disk: &mut Disk) -> bool {
        let closes = self.overwriting.take().unwrap_or_default();
        self.has_sealed = false;
        disk.flush_data();
        self.older_log = Some(self.superblock.log);
        self.superblock.generation += 1;
        self.free |= std::mem::take(&mut self.quarantine);
        if closes {
            disk.cached.halves = Default::default();
        }
        closes
    }

    fn release_all(&mut self) {
        self.free |= std::mem::take(&mut self.quarantine);
    }

    /// Applies a record; `Corrupt` if it does not continue the state.
    fn apply_record(
        &mut self,
        config: &Config,
        rules: &Rules,
        files: &Files,
        record: &LogRecord,
    ) -> Result<(), Corrupt> {
        for collection in (0..COLLECTIONS).filter(|collection| record.clears & 1 << collection != 0) {
            self.empty(config, collection);
        }
        for (key, value) in record
            .changes
            .into_iter()
            .enumerate()
            .filter(|(_, value)| value.is_some())
        {
            let is_merged =
                value.is_out_of_line() && !self.reserve_value(rules, files, value)? && self.records[key] == value;
            if is_merged {
                self.change(key, Value::default());
            } else {
                self.change(key, value);
            }
            if value.expires && (!is_merged || rules.adds_hints) {
                self.put_hint(config);
            }
        }
        if !record.is_marker {
            self.version += 1;
        }
        if self.version == record.version {
            Ok(())
        } else {
            Err(Corrupt)
        }
    }

    /// Takes the extent of a value out of the free space; `false` if it is in use, by this value.
    fn reserve_value(&mut self, rules: &Rules, files: &Files, value: Value) -> Result<bool, Corrupt> {
        let extents = value.extents();
        if self.free & extents == 0 && rules.release == Release::OnDemand {
            self.release_all();
        }
        if self.free & extents != 0 {
            self.free &= !extents;
            return Ok(true);
        }
        if files.blocks[usize::from(value.extent)] == value.content() {
            Ok(false)
        } else {
            Err(Corrupt)
        }
    }
}

/// What the log holds behind a position.
pub(super) struct Replay {
    /// Each with the position before it, and whether it is known to have been flushed.
    pub records: Vec<(LogRecord, Position, bool)>,
    end: Position,
    came_from: Position,
}

/// Reads the records behind a position.
pub(super) fn replay(rules: &Rules, files: &Files, start: Position) -> Result<Replay, Corrupt> {
    let mut replay = Replay {
        records: Vec::new(),
        end: start,
        came_from: start,
    };
    replay.read_records(files)?;
    for _ in 0..2 {
        let half = 1 - replay.end.half;
        let header = files.halves[usize::from(half)].header;
        let Some(header) = header.filter(|header| header.from.salt == replay.end.salt) else {
            break;
        };
        if header.from != replay.end {
            // The log may have ended in front of a record that lost its blocks.
            let end = replay.records.iter().position(|(_, start, _)| *start == header.from);
            replay
                .records
                .truncate(end.filter(|_| rules.ends_at_switch).ok_or(Corrupt)?);
            replay.end = header.from;
        }
        replay.came_from = replay.end;
        replay.end = Position::first(half, header.salt);
        replay.read_records(files)?;
    }
    Ok(replay)
}

impl Replay {
    fn read_records(&mut self, files: &Files) -> Result<(), Corrupt> {
        let half = &files.halves[usize::from(self.end.half)].records;
        let first = self.records.len();
        let mut flushed_to = 0;
        while let Some(Some(record)) = half.get(usize::from(self.end.index)) {
            if record.salt != self.end.salt || record.previous_crc != self.end.crc {
                break;
            }
            flushed_to = flushed_to.max(record.flushed_to);
            self.records.push((*record, self.end, false));
            self.end.index += 1;
            self.end.crc = record.crc;
        }
        for (_, start, confirmed) in &mut self.records[first..] {
            *confirmed = start.index < flushed_to;
        }
        let beyond = half.iter().skip(usize::from(self.end.index) + 1).flatten();
        let is_damaged = |record: &LogRecord| record.salt == self.end.salt && record.flushed_to > self.end.index;
        if beyond.into_iter().any(is_damaged) {
            Err(Corrupt)
        } else {
            Ok(())
        }
    }

    /// Number of records that count: one that may not have been flushed needs its blocks.
    pub(super) fn counting(&self, files: &Files) -> usize {
        let is_there =
            |value: &Value| !value.is_out_of_line() || files.blocks[usize::from(value.extent)] == value.content();
        let counts =
            |(record, _, confirmed): &&(LogRecord, Position, bool)| *confirmed || record.changes.iter().all(is_there);
        self.records.iter().take_while(counts).count()
    }

    fn truncate(&mut self, count: usize) -> Result<(), Corrupt> {
        if let Some((_, start, _)) = self.records.get(count) {
            if start.salt != self.end.salt {
                return Err(Corrupt);
            }
            self.end = *start;
            self.records.truncate(count);
        }
        Ok(())
    }
}

/// Whether the nodes that a superblock names are intact.
pub(super) fn has_trees(config: &Config, files: &Files, superblock: &Superblock) -> bool {
    (0..COLLECTIONS).all(|collection| {
        superblock.roots[collection].is_none_or(|extent| {
            node_of(config, collection, &superblock.records) == Some(files.blocks[usize::from(extent)])
        })
    })
}

fn has_header(files: &Files, superblock: &Superblock) -> bool {
    let headers = files.halves.iter().filter_map(|half| half.header);
    // A half is restarted while superblocks still name its former end, where the other one goes on.
    let mut leads = headers.map(|header| header.salt == superblock.log.salt || header.from == superblock.log);
    superblock.closed || leads.any(|leads| leads)
}

/// Builds the state that a superblock and its log describe; also returns whether the log held any of
/// it.
fn recover_from(
    config: &Config,
    rules: &Rules,
    files: &Files,
    superblock: &Superblock,
    releases: bool,
) -> Result<(Writer, bool), Corrupt> {
    if !has_trees(config, files, superblock) || rules.proves_log && !has_header(files, superblock) {
        return Err(Corrupt);
    }
    let mut replay = replay(rules, files, superblock.log)?;
    let mut writer = Writer {
        superblock: *superblock,
        older_log: None,
        version: superblock.version,
        roots: superblock.roots,
        records: superblock.records,
        active: Records::default(),
        frozen: Records::default(),
        exists: superblock.exists,
        emptied_at: [0; COLLECTIONS],
        free: superblock.free,
        quarantine: superblock.leaving,
        retired: 0,
        frozen_space: None,
        merging: None,
        sealing: None,
        has_sealed: false,
        overwriting: None,
        log: Log {
            at: Position::default(),
            came_from: Position::default(),
            unbegun: false,
            checkpoint_first: false,
        },
        flushed: (0, 0),
    };
    if releases {
        writer.release_all();
    }
    let counting = replay.counting(files);
    for (record, ..) in &replay.records[..counting] {
        writer.apply_record(config, rules, files, record)?;
    }
    replay.truncate(counting)?;
    if rules.states_reach && writer.version < superblock.reaches {
        return Err(Corrupt);
    }
    writer.log.at = replay.end;
    writer.log.came_from = replay.came_from;
    writer.log.unbegun = replay.end.index == 0;
    Ok((writer, !replay.records.is_empty()))
}

/// Opens the database.
pub(super) fn open(config: &Config, rules: &Rules, disk: &mut Disk) -> Result<Writer, Corrupt> {
    let files = &disk.cached;
    let slot = files.newest().ok_or(Corrupt)?;
    let (newest, older) = (files.slots[slot].ok_or(Corrupt)?, files.slots[1 - slot]);
    if rules.proves_log && rules.refuses_outright && !has_header(files, &newest) {
        // The older superblock may have been closed, and its log missing.
        return Err(Corrupt);
    }
    let is_needed = older.is_some_and(|older| older.leaving != newest.leaving || older.roots != newest.roots);
    let releases = rules.release == Release::Unneeded && !is_needed;
    let (writer, has_records) = match recover_from(config, rules, files, &newest, releases) {
        Ok((mut writer, has_records)) => {
            if !newest.closed {
                writer.superblock.generation += 2;
            }
            (writer, has_records)
        }
        Err(error) => {
            let older = older.ok_or(error)?;
            let (mut writer, has_records) =
                recover_from(config, rules, files, &older, rules.release != Release::OnDemand)?;
            let least = if rules.older_reaches {
                newest.version.max(newest.reaches)
            } else {
                newest.version
            };
            if writer.version < least {
                return Err(error);
            }
            writer.superblock.generation = newest.generation + 3;
            writer.log.checkpoint_first = true;
            (writer, has_records)
        }
    };
    if has_records || rules.flushes_at_open {
        disk.flush_data();
        disk.flush_log();
    }
    Ok(writer)
}
