//! The state of the model, its steps, and what must hold in each state.

use super::disk::{
    Cut, Disk, EXTENTS, Files, HALF, Half, INLINE, KEYS, Position, REMOVED, Records, Set, Superblock, TORN, Value,
    extents_of, roots_of,
};
use super::writer::{Kind, Writer, allocate, has_trees, node_of, open, replay};
use super::{Config, Rules};

const VERSIONS: usize = 10;

/// Damage to the files while nothing has them open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Damage {
    /// The newest superblock's slot.
    Superblock,
    /// A node that only the newest superblock reaches.
    Node,
    /// The n-th record of the log.
    Record(u8),
    /// The log is empty.
    Log,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Step {
    Commit(u8),
    CommitLarge(u8),
    Flush,
    Freeze { switch_log: bool },
    Seal(Kind),
    EndSeal,
    OverwriteOlder,
    EndOverwrite,
    Kill(Option<Damage>),
    PowerCut(Cut, Option<Damage>),
}

/// What the next opening has to find.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Expected {
    least: u8,
    may_refuse: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    disk: Disk,
    writer: Option<Writer>,
    /// Ids of the values in each version.
    committed: [[u8; KEYS]; VERSIONS],
    /// The newest version that may become durable.
    newest: u8,
    /// Acknowledged as durable.
    durable: u8,
    /// Acknowledged by a flush of the log.
    logged: u8,
    expected: Expected,
    /// A commit is missing from the log.
    has_unlogged: bool,
    /// The next number for a value, a record or a half.
    serial: u8,
    commits: u8,
    deaths: u8,
    damages: u8,
}

/// What is wrong with a state.
pub(super) type Violation = &'static str;

impl State {
    /// A closed database of version 1.
    pub(super) fn new(config: &Config, rules: &Rules) -> Self {
        let mut blocks = [0; EXTENTS];
        let mut free: Set = (1 << config.extents) - 1;
        let mut records = Records::default();
        let mut serial = 1;
        for &(key, is_out_of_line) in config.initial {
            let mut value = Value {
                id: serial,
                version: 1,
                extent: INLINE,
                expires: false,
            };
            serial += 1;
            if is_out_of_line {
                value.extent = allocate(&mut free).expect("there is room for the first records");
                blocks[usize::from(value.extent)] = value.content();
            }
            records[key] = value;
        }
        let roots = std::array::from_fn(|collection| {
            node_of(config, collection, &records).map(|content| {
                let extent = allocate(&mut free).expect("there is room for the first nodes");
                blocks[usize::from(extent)] = content;
                extent
            })
        });
        let superblock = |generation| Superblock {
            generation,
            version: 1,
            reaches: 0,
            closed: true,
            log: Position::first(0, serial),
            roots,
            records,
            exists: config.exists,
            free,
            leaving: 0,
        };
        let files = Files {
            blocks,
            slots: [Some(superblock(2)), Some(superblock(1))],
            halves: [Half::default(); 2],
        };
        let mut committed = [[0; KEYS]; VERSIONS];
        committed[1] = records.map(|value| value.id);
        let mut state = Self {
            disk: Disk {
                cached: files,
                durable: files,
            },
            writer: None,
            committed,
            newest: 1,
            durable: 1,
            logged: 1,
            expected: Expected {
                least: 1,
                may_refuse: false,
            },
            has_unlogged: false,
            serial: serial + 1,
            commits: config.commits,
            deaths: config.deaths,
            damages: u8::from(config.has_damage),
        };
        state.open(config, rules).expect("it is intact");
        state
    }

    /// The steps that may come next; some turn out to be impossible.
    pub(super) fn steps(&self, config: &Config) -> Vec<Step> {
        let mut steps = Vec::new();
        let Some(writer) = &self.writer else { return steps };
        if writer.overwriting.is_some() {
            steps.push(Step::EndOverwrite);
        } else {
            self.steps_of(writer, config, &mut steps);
        }
        if self.deaths > 0 {
            let cuts = self.disk.cuts();
            let damages = || {
                let records = (0..2 * HALF as u8).map(Damage::Record);
                let any = records
                    .chain([Damage::Superblock, Damage::Node, Damage::Log])
                    .filter(|_| self.damages > 0);
                any.map(Some).chain([None])
            };
            steps.extend(damages().map(Step::Kill));
            for cut in cuts {
                steps.extend(damages().map(|damage| Step::PowerCut(cut, damage)));
            }
        }
        steps
    }

    fn steps_of(&self, writer: &Writer, config: &Config, steps: &mut Vec<Step>) {
        let is_idle = writer.merging.is_none() && writer.sealing.is_none();
        let can_commit = self.commits > 0 && !writer.is_busy();
        let has_space = usize::from(writer.log.at.index) < HALF && !writer.log.checkpoint_first;
        if can_commit {
            let kinds = 0..config.kinds.len() as u8;
            if has_space && !(writer.superblock.closed && writer.sealing.is_some()) {
                steps.extend(kinds.clone().map(Step::Commit));
            }
            if is_idle && (config.has_other_steps || writer.log.checkpoint_first) {
                let without_clears = kinds.filter(|&kind| config.kinds[usize::from(kind)].clears.is_none());
                steps.extend(without_clears.map(Step::CommitLarge));
            }
        }
        if !writer.is_busy() && self.durable < writer.version {
            steps.push(Step::Flush);
        }
        if is_idle && writer.active.iter().any(|value| value.is_some()) {
            steps.push(Step::Freeze { switch_log: false });
            if writer.can_switch(config) {
                steps.push(Step::Freeze { switch_log: true });
            }
        }
        if writer.merging.is_some() && writer.sealing.is_none() {
            steps.extend([Step::Seal(Kind::Partial), Step::Seal(Kind::Whole)]);
        }
        if is_idle && config.has_other_steps && self.deaths > 0 && !writer.superblock.closed {
            steps.push(Step::Seal(Kind::Closing));
        }
        if writer.sealing.is_some() {
            steps.push(Step::EndSeal);
        } else if config.has_other_steps && writer.wants_overwrite(config) {
            steps.push(Step::OverwriteOlder);
        }
    }

    /// The state after a step; `None` if the step is impossible.
    pub(super) fn after(&self, config: &Config, rules: &Rules, step: Step) -> Result<Option<Self>, Violation> {
        let mut state = *self;
        let taken = match step {
            Step::Kill(damage) => state.die(None, damage),
            Step::PowerCut(cut, damage) => state.die(Some(cut), damage),
            _ => state.write(config, rules, step),
        };
        if taken.is_none() {
            return Ok(None);
        }
        if state.writer.is_none() {
            state.open(config, rules)?;
        }
        state.check(config, rules)?;
        state.renumber();
        state.forget_free_blocks();
        Ok(Some(state))
    }

    fn number(&mut self) -> u8 {
        self.serial += 1;
        self.serial - 1
    }

    fn changes(&mut self, config: &Config, kind: u8) -> Records {
        let kind = &config.kinds[usize::from(kind)];
        let mut changes = Records::default();
        for &(key, is_out_of_line) in kind.puts {
            changes[key] = Value {
                id: self.number(),
                version: 0,
                extent: if is_out_of_line { 0 } else { INLINE },
                expires: kind.expires == Some(key),
            };
        }
        for &key in kind.removes {
            changes[key] = Value::REMOVAL;
        }
        changes
    }

    /// A step of the writer.
    fn write(&mut self, config: &Config, rules: &Rules, step: Step) -> Option<()> {
        let crc = match step {
            Step::Commit(_) | Step::EndSeal | Step::Freeze { switch_log: true } | Step::Seal(Kind::Closing) => {
                self.number()
            }
            _ => 0,
        };
        let changes = match step {
            Step::Commit(kind) | Step::CommitLarge(kind) => self.changes(config, kind),
            _ => Records::default(),
        };
        let mut writer = self.writer?;
        match step {
            Step::Commit(kind) => {
                let clears = config.kinds[usize::from(kind)]
                    .clears
                    .map_or(0, |collection| 1 << collection);
                writer.commit(config, rules, &mut self.disk, crc, changes, clears)?;
                self.commits -= 1;
                self.newest = writer.version;
                self.committed[usize::from(writer.version)] = writer.visible();
            }
            Step::CommitLarge(_) => {
                writer.commit_large(config, rules, &mut self.disk, changes)?;
                self.commits -= 1;
                self.newest = writer.version + 1;
                let before = self.committed[usize::from(writer.version)];
                self.committed[usize::from(self.newest)] = std::array::from_fn(|key| match changes[key].id {
                    0 => before[key],
                    REMOVED => 0,
                    id => id,
                });
                self.has_unlogged = true;
            }
            Step::Flush => {
                writer.flush_appended(&mut self.disk);
                self.flushed_log(&writer);
            }
            Step::Freeze { switch_log } => {
                if switch_log {
                    writer.switch_log(&mut self.disk, crc);
                    self.flushed_log(&writer);
                }
                writer.freeze(config);
            }
            Step::Seal(kind) => {
                if kind == Kind::Closing {
                    writer.freeze(config);
                }
                writer.seal(config, rules, &mut self.disk, kind, crc)?;
                if kind == Kind::Partial || rules.flushes_log {
                    self.flushed_log(&writer);
                }
            }
            Step::EndSeal => {
                writer.end_seal(config, &mut self.disk, crc);
                self.durable = self.durable.max(writer.superblock.version);
            }
            Step::OverwriteOlder => writer.overwrite_older(&mut self.disk, false),
            Step::EndOverwrite => {
                if writer.end_overwrite(&mut self.disk) {
                    self.deaths -= 1;
                    self.expected = Expected {
                        least: writer.version,
                        may_refuse: false,
                    };
                    self.writer = None;
                    return Some(());
                }
            }
            Step::Kill(_) | Step::PowerCut(..) => return None,
        }
        self.writer = Some(writer);
        Some(())
    }

    /// The log was flushed as far as the writer has written it.
    fn flushed_log(&mut self, writer: &Writer) {
        self.durable = writer.version;
        let last = writer.log.position();
        let mut records = self
            .disk
            .durable
            .halves
            .iter()
            .flat_map(|half| half.records.iter().flatten());
        if records.any(|record| record.crc == last.crc && record.version == writer.version) {
            self.logged = writer.version;
        }
    }

    /// The process dies, with the machine if there is a power cut. `None` if nothing can be damaged
    /// that way.
    fn die(&mut self, cut: Option<Cut>, damage: Option<Damage>) -> Option<()> {
        let writer = self.writer.take()?;
        self.deaths -= 1;
        let mut expected = Expected {
            least: writer.version,
            may_refuse: false,
        };
        if let Some(cut) = cut {
            self.disk.cut(cut);
            expected.least = self.durable;
        }
        if let Some(damage) = damage {
            self.damages -= 1;
            let mut files = self.disk.cached;
            let slot = files.newest()?;
            let newest = files.slots[slot]?;
            match damage {
                Damage::Superblock | Damage::Node => {
                    let older = files.slots[1 - slot]?;
                    if damage == Damage::Superblock {
                        files.slots[slot] = None;
                    } else {
                        let only = roots_of(newest.roots) & !roots_of(older.roots);
                        if only == 0 {
                            return None;
                        }
                        files.blocks[only.trailing_zeros() as usize] = TORN;
                    }
                    // What became durable with that superblock alone is lost with it.
                    if cut.is_some() || self.has_unlogged {
                        expected.least = expected.least.min(self.logged);
                        expected.may_refuse = true;
                    }
                }
                Damage::Record(index) => {
                    let mut records = files.halves.iter_mut().flat_map(|half| &mut half.records);
                    records.nth(usize::from(index))?.take()?;
                    expected.least = newest.version.max(newest.reaches);
                    expected.may_refuse = true;
                }
                Damage::Log => {
                    files.halves = [Half::default(); 2];
                    if newest.closed {
                        // A power cut may have taken the superblock that the first record needs and
                        // left the record, so it was replayed.
                        expected.least = newest.version;
                    }
                    expected.may_refuse = true;
                }
            }
            self.disk.set(&files);
        }
        self.expected = expected;
        Some(())
    }

    fn open(&mut self, config: &Config, rules: &Rules) -> Result<(), Violation> {
        let expected = std::mem::take(&mut self.expected);
        let Ok(writer) = open(config, rules, &mut self.disk) else {
            // Nothing follows: the writer stays away, without a death that could open it again.
            self.expected = expected;
            self.deaths = 0;
            return if expected.may_refuse {
                Ok(())
            } else {
                Err("an intact database is refused")
            };
        };
        if writer.version > self.newest || writer.visible() != self.committed[usize::from(writer.version)] {
            return Err("the state is not a committed one");
        }
        if writer.version < expected.least {
            return Err("the state is older than what was acknowledged");
        }
        for committed in &mut self.committed[usize::from(writer.version) + 1..] {
            *committed = [0; KEYS];
        }
        self.newest = writer.version;
        // An empty strict commit returns at once.
        self.durable = writer.version;
        self.logged = self.logged.min(writer.version);
        self.writer = Some(writer);
        Ok(())
    }

    /// Empties the free blocks, which no recovery reads, so that equal states meet.
    fn forget_free_blocks(&mut self) {
        let free = self.writer.map_or(0, |writer| writer.free);
        for extent in (0..EXTENTS).filter(|extent| free & 1 << extent != 0) {
            self.disk.cached.blocks[extent] = 0;
            self.disk.durable.blocks[extent] = 0;
        }
    }

    /// Makes generations as small as their order and their slots allow, so that equal states meet.
    fn renumber(&mut self) {
        let Disk { cached, durable } = &mut self.disk;
        let mut all: Vec<&mut u8> = cached
            .slots
            .iter_mut()
            .chain(&mut durable.slots)
            .flatten()
            .map(|slot| &mut slot.generation)
            .collect();
        if let Some(writer) = &mut self.writer {
            all.extend(writer.generations());
        }
        all.sort_unstable();
        let (mut former, mut last) = (0, 0);
        for generation in all {
            if *generation != former {
                former = *generation;
                last += if former % 2 == last % 2 { 2 } else { 1 };
            }
            *generation = last;
        }
    }

    /// What each superblock needs: what its trees reach, and the blocks that its log names.
    fn needed(&self, config: &Config, rules: &Rules) -> Set {
        let Disk { cached, durable } = &self.disk;
        let logs = [cached, durable];
        let logs = &logs[..if cached.halves == durable.halves { 1 } else { 2 }];
        let mut needed = 0;
        for slot in 0..2 {
            let slots = [
                cached.slots[slot],
                durable.slots[slot].filter(|_| cached.slots[slot] != durable.slots[slot]),
            ];
            for superblock in slots
                .iter()
                .flatten()
                .filter(|superblock| has_trees(config, cached, superblock))
            {
                needed |= roots_of(superblock.roots) | extents_of(&superblock.records);
                for log in logs {
                    if let Ok(replay) = replay(rules, log, superblock.log) {
                        let records = &replay.records[..replay.counting(cached)];
                        needed |= records
                            .iter()
                            .fold(0, |set, (record, ..)| set | extents_of(&record.changes));
                    }
                }
            }
        }
        needed
    }

    fn check(&self, config: &Config, rules: &Rules) -> Result<(), Violation> {
        let Some(writer) = &self.writer else { return Ok(()) };
        if writer.free & self.needed(config, rules) != 0 {
            return Err("an extent that a recovery needs is free");
        }
        if writer.used() & (writer.free | writer.kept()) != 0 {
            return Err("an extent is in use, and free now or later");
        }
        let all = writer.free | writer.kept() | writer.used();
        if writer.sealing.is_none() && all != (1 << config.extents) - 1 {
            return Err("an extent is lost");
        }
        let intact = |value: &Value| {
            !value.is_out_of_line() || self.disk.cached.blocks[usize::from(value.extent)] == value.content()
        };
        let values = [&writer.records, &writer.active, &writer.frozen];
        if !values.into_iter().flatten().all(intact) {
            return Err("a value is overwritten");
        }
        Ok(())
    }
}
