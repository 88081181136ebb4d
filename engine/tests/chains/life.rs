//! A chain of lives.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::events::MergeEvents;
use mangrove_engine::testing::shadow::{ShadowCounts, use_key};
use mangrove_engine::testing::sim::{CrashPolicy, Held, SimRng, SimStorage};
use mangrove_engine::{
    AdvancedOptions, Clock, CompactOptions, Compression, Database, Durability, Error, ExclusiveTransaction, IndexBy,
    Key, KeyRange, Options, ReencryptOptions, Snapshot, StagedValue, restore,
};

use crate::model::{History, Record, State, check, difference, records};

/// Most records of the largest collection.
const RECORDS: u64 = 6000;
/// Records at the front of that collection, which are rewritten again and again.
const FRONT: u64 = 60;

/// What chains went through. Each number has to be large enough for the default run to prove anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub chains: u64,
    pub lives: u64,
    pub images: u64,
    pub commits: u64,
    pub process_deaths: u64,
    pub power_cuts: u64,
    pub closes: u64,
    /// Deaths behind a partial checkpoint.
    pub partial_deaths: u64,
    /// Openings that changed behind a partial checkpoint and died there again.
    pub partial_twice: u64,
    pub begun: u64,
    pub abandoned: u64,
    pub lent_merge: u64,
    pub in_draft: u64,
    pub quarantined: u64,
    pub encrypted: u64,
    pub fed: u64,
    pub clears: u64,
    pub drops: u64,
    pub renames: u64,
    pub compactions: u64,
    pub reencryptions: u64,
    pub index_builds: u64,
    pub large: u64,
    pub staged: u64,
    pub purged: u64,
    pub jumps: u64,
    pub backups: u64,
    pub incremental: u64,
    pub snapshots: u64,
    pub shadow: ShadowCounts,
}

impl Counts {
    /// Fails if the chains hardly met what they are for.
    pub(crate) fn assert_frequent(&self) {
        let each = [
            ("lives", self.lives, 300),
            ("images", self.images, 1500),
            ("deaths of the process", self.process_deaths, 150),
            ("power cuts", self.power_cuts, 100),
            ("closes", self.closes, 40),
            ("deaths behind a partial checkpoint", self.partial_deaths, 40),
            ("two of them in a row", self.partial_twice, 4),
            ("frozen versions", self.begun, 1500),
            ("abandoned merges", self.abandoned, 80),
            ("lent merges", self.lent_merge, 80),
            ("transactions larger than memory", self.in_draft, 100),
            ("commits with a quarantine", self.quarantined, 4000),
            ("checkpoints", self.shadow.checkpoints, 2500),
            ("partial checkpoints", self.shadow.partial, 600),
            ("switches of the log", self.shadow.switches, 250),
            ("writes to reused space", self.shadow.reused, 100_000),
            ("encrypted chains", self.encrypted, 8),
            ("chains with a feed", self.fed, 8),
            ("clears", self.clears, 400),
            ("drops", self.drops, 120),
            ("renames", self.renames, 120),
            ("compactions", self.compactions, 60),
            ("re-encryptions", self.reencryptions, 20),
            ("builds of indexes", self.index_builds, 150),
            ("large transactions", self.large, 40),
            ("staged values", self.staged, 10),
            ("purges", self.purged, 40),
            ("jumps of the clock", self.jumps, 300),
            ("backups", self.backups, 50),
            ("incremental backups", self.incremental, 6),
            ("snapshots", self.snapshots, 150),
        ];
        let rare: Vec<_> = each.iter().filter(|(_, found, least)| found < least).collect();
        assert!(rare.is_empty(), "too rare: {rare:?}");
    }
}

thread_local! {
    static STEP: RefCell<String> = const { RefCell::new(String::new()) };
    static RANDOM: Cell<u64> = const { Cell::new(1) };
}

/// Whether `MANGROVE_CHAINS_WITHOUT` leaves a kind of operation out (`expiry`, `abandon`), to see what
/// else there is beside a fault that is known.
fn is_left_out(kind: &str) -> bool {
    static WITHOUT: OnceLock<String> = OnceLock::new();
    let without = WITHOUT.get_or_init(|| std::env::var("MANGROVE_CHAINS_WITHOUT").unwrap_or_default());
    without.split(',').any(|other| other == kind)
}

/// What the thread's last chain did last.
pub(crate) fn last_step() -> String {
    STEP.with_borrow(Clone::clone)
}

/// Numbers that are the same in every run of a chain.
fn repeatable(buffer: &mut [u8]) {
    for byte in buffer {
        let state = RANDOM.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        RANDOM.set(state);
        *byte = (state >> 56) as u8;
    }
}

/// A full backup restored, and brought up to date by incremental ones.
struct Copy {
    storage: MemoryStorage,
    version: u64,
}

struct Chain<'c> {
    rng: SimRng,
    storage: SimStorage,
    history: History,
    now: Arc<AtomicU64>,
    session: u64,
    /// Options of all lives.
    base: Options,
    has_staged: bool,
    /// Most lives only commit to the log and merge, so that they see many partial checkpoints.
    is_merging: bool,
    copy: Option<Copy>,
    counts: &'c mut Counts,
    seed: u64,
    life: u64,
    /// The life before ended behind a partial checkpoint.
    was_partial: bool,
}

/// What a life has open beside its database. Dropped in this order.
#[derive(Default)]
struct Open {
    snapshots: Vec<(Option<Held>, Snapshot, Arc<State>, u64)>,
    /// With how much of it was appended.
    staged: Vec<(Option<Held>, StagedValue, Record, usize)>,
}

fn key(number: u64) -> Vec<u8> {
    (number as u32).to_be_bytes().to_vec()
}

fn by_first() -> IndexBy {
    IndexBy::new("first", |_key, value| value.get(..2).map(<[u8]>::to_vec))
}

/// Runs the chain of a seed.
pub(crate) fn run_chain(seed: u64, counts: &mut Counts) {
    RANDOM.set(seed);
    let mut rng = SimRng::new(seed);
    let is_encrypted = rng.below(5) == 0;
    let has_feed = rng.below(5) == 0;
    let is_merging = rng.below(3) > 0;
    let secret = is_encrypted.then(|| Key::with_random([9; 32], repeatable));
    use_key(secret.clone());
    let now = Arc::new(AtomicU64::new(1_000_000));
    let time = Arc::clone(&now);
    let base = Options {
        compression: [Compression::None, Compression::Lz4][rng.below(2) as usize],
        clock: Clock::new(move || time.load(Ordering::Relaxed)),
        key: secret,
        feed_commits: if has_feed { 60 } else { 0 },
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: [512, 512, 512, 1024][rng.below(4) as usize],
            log_bytes: Some(match rng.below(4) {
                _ if is_merging => [256 << 10, 1 << 20][rng.below(2) as usize],
                size => [16 << 10, 48 << 10, 128 << 10, 1 << 20][size as usize],
            }),
            database_id: Some(7),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    counts.chains += 1;
    counts.encrypted += u64::from(is_encrypted);
    counts.fed += u64::from(has_feed);
    let mut chain = Chain {
        has_staged: rng.below(4) == 0,
        is_merging,
        storage: SimStorage::new(),
        history: History::default(),
        now,
        session: 0,
        base,
        copy: None,
        counts,
        seed,
        life: 0,
        was_partial: false,
        rng,
    };
    chain.create();
    let lives = 3 + chain.rng.below(9) * chain.rng.below(3);
    for life in 0..lives.min(20) {
        chain.life = life;
        chain.live();
    }
    use_key(None);
}

impl Chain<'_> {
    fn options(&mut self) -> Options {
        self.session += 1;
        Options {
            cache_bytes: [64 << 10, 64 << 10, 96 << 10, 160 << 10][self.rng.below(4) as usize],
            advanced: AdvancedOptions {
                session: Some(self.session),
                ..self.base.advanced
            },
            ..self.base.clone()
        }
    }

    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn note(&self, what: &str) {
        let text = format!("life {}, {what}", self.life);
        STEP.set(text);
    }

    /// A tree that is larger than a round of a merge, closed.
    fn create(&mut self) {
        self.note("creation");
        let options = self.options();
        let database = Database::open(Arc::new(self.storage.clone()), options).expect("it is new");
        let mut state = State::new();
        for name in ["b", "zoo", "i"] {
            let record = self.record(10);
            records(&mut state, name).insert(key(1), record);
        }
        let count = RECORDS / (1 + self.rng.below(3));
        for number in 0..count {
            let record = self.record(40);
            records(&mut state, "a").insert(key(number), record);
        }
        for (name, all) in &state {
            for chunk in all.iter().collect::<Vec<_>>().chunks(150) {
                let mut transaction = database.begin().expect("it works");
                for (key, record) in chunk {
                    transaction.put(name, key, &record.value()).expect("it works");
                }
                transaction.commit(Durability::Relaxed).expect("it works");
            }
        }
        let version = database.version();
        database.close().expect("it works");
        self.history.states.insert(version, Arc::new(state));
        self.history.acknowledge(version);
    }

    fn record(&mut self, len: usize) -> Record {
        Record {
            seed: self.rng.next_u64(),
            len,
            expires: 0,
        }
    }

    /// A random record: most are short, some out of line, few very long.
    fn any_record(&mut self) -> Record {
        let len = match self.rng.below(40) {
            0..=24 => self.rng.below(60),
            25..=36 => 500 + self.rng.below(400),
            37 | 38 => self.rng.below(5000),
            _ if self.rng.below(12) == 0 => 100_001 + self.rng.below(100_000),
            _ => 0,
        };
        let mut record = self.record(len as usize);
        if self.rng.below(6) == 0 && !is_left_out("expiry") {
            record.expires = self.now() + 1 + self.rng.below(100_000);
        }
        record
    }

    /// Opens what the last death left, lives and dies.
    fn live(&mut self) {
        self.note("opening");
        let options = self.options();
        let context = format!("chain {}, life {}", self.seed, self.life);
        let opened = Database::open(Arc::new(self.storage.clone()), options);
        let database = opened.unwrap_or_else(|error| panic!("{context} does not open: {error}"));
        let least = self.history.acknowledged;
        let version = check(&database, &self.history, least, self.now(), &mut self.rng, &context);
        self.counts.lives += 1;
        self.counts.images += 1;
        self.history.truncate(version);
        let state = self.history.state(version);
        self.history.states.retain(|other, _| *other == version);
        self.history.states.insert(version, state);
        self.history.acknowledge(version);
        self.copy.take_if(|copy| copy.version > version);
        let first = self.storage.counters().operations;
        let only_merges = self.is_merging && self.rng.below(5) > 0;
        let dies_at = match self.rng.below(4) {
            _ if only_merges && self.rng.below(4) > 0 => u64::MAX,
            // Between two operations.
            0 => u64::MAX,
            _ => {
                let span = [40, 400, 3000][self.rng.below(3) as usize];
                first + self.rng.below(span)
            }
        };
        self.storage.cut_at(dies_at);
        let steps = 20 + self.rng.below(if only_merges { 600 } else { 250 });
        let checkpoints = 1 + self.rng.below(4);
        let mut open = Open::default();
        let mut events = MergeEvents::default();
        let mut outcome = Ok(());
        for step in 0..steps {
            outcome = if only_merges {
                self.merging_step(&database, &mut open, step)
            } else {
                self.step(&database, &mut open, step)
            };
            if outcome.is_err() {
                break;
            }
            if step % 16 == 15 {
                self.look(&database);
            }
            self.counts.quarantined += u64::from(step % 4 == 0 && database.stats().kept_bytes > 0);
            events = database.merge_events();
            if only_merges && events.partial >= checkpoints && events.ends_partial {
                break;
            }
        }
        self.counts.begun += events.begun;
        self.counts.abandoned += events.abandoned;
        self.counts.lent_merge += events.lent_merge;
        self.counts.in_draft += events.in_draft;
        match outcome {
            Ok(()) if self.rng.below(if only_merges { 16 } else { 3 }) == 0 => self.close(database, open),
            Ok(()) | Err(Error::Io(_) | Error::Poisoned { .. }) => self.die(database, open),
            Err(error) => panic!("{context}, {}: {error}", last_step()),
        }
    }

    fn close(&mut self, database: Database, open: Open) {
        self.note("close");
        drop(open);
        let version = database.version();
        if database.close().is_ok() {
            self.history.acknowledge(version);
        }
        self.counts.closes += 1;
        self.was_partial = false;
        self.end(CrashPolicy::Everything);
    }

    fn die(&mut self, database: Database, open: Open) {
        self.note("death");
        let is_partial = database.merge_events().ends_partial;
        self.counts.partial_deaths += u64::from(is_partial);
        self.counts.partial_twice += u64::from(is_partial && self.was_partial);
        self.was_partial = is_partial;
        let policy = CrashPolicy::ALL[self.rng.below(6) as usize];
        let policy = if self.rng.below(2) == 0 {
            CrashPolicy::Everything
        } else {
            policy
        };
        let image = self.image(policy);
        drop(open);
        drop(database);
        self.replace(policy, image);
    }

    fn end(&mut self, policy: CrashPolicy) {
        let image = self.image(policy);
        self.replace(policy, image);
    }

    fn image(&mut self, policy: CrashPolicy) -> BTreeMap<String, Vec<u8>> {
        self.storage.crash(policy, self.rng.next_u64())
    }

    fn replace(&mut self, policy: CrashPolicy, image: BTreeMap<String, Vec<u8>>) {
        if policy == CrashPolicy::Everything {
            self.history.acknowledged = self.history.handed_over;
            self.counts.process_deaths += 1;
        } else {
            self.counts.power_cuts += 1;
        }
        self.counts.shadow.add(&self.storage.shadow_counts());
        self.storage = SimStorage::from_files(image);
    }

    /// Opens what a death now would leave, beside the database.
    fn look(&mut self, database: &Database) {
        let policy = CrashPolicy::ALL[self.rng.below(6) as usize];
        let image = self.image(policy);
        let least = if policy == CrashPolicy::Everything {
            self.history.handed_over
        } else {
            self.history.acknowledged
        };
        let context = format!(
            "chain {}, life {}, {policy:?} image of version {}",
            self.seed,
            self.life,
            database.version()
        );
        let storage = SimStorage::from_files(image).without_shadow();
        let options = self.options();
        let opened = Database::open(Arc::new(storage), options);
        let other = opened.unwrap_or_else(|error| panic!("{context} does not open: {error}"));
        check(&other, &self.history, least, self.now(), &mut self.rng, &context);
        self.counts.images += 1;
    }

    fn step(&mut self, database: &Database, open: &mut Open, step: u64) -> Result<(), Error> {
        let kind = self.rng.below(100);
        self.note(&format!("step {step}, kind {kind}"));
        let version = database.version();
        match kind {
            0..=49 => {
                let changes = 1 + self.rng.below(8);
                self.commit(database, changes)?;
            }
            50..=61 => {
                let changes = 40 + self.rng.below(200);
                self.commit(database, changes)?;
            }
            62 | 63 if self.rng.below(3) == 0 => {
                self.counts.large += 1;
                let changes = 300 + self.rng.below(400);
                self.commit(database, changes)?;
            }
            64..=70 if is_left_out("abandon") => {}
            64..=67 => self.clear(database)?,
            68..=70 => self.drop_or_rename(database)?,
            71 => {
                database.checkpoint()?;
                self.history.acknowledge(version);
            }
            72..=74 => {
                database.flush()?;
                self.history.acknowledge(version);
            }
            75..=80 => {
                let slices = [1, 6, 40, 2000][self.rng.below(4) as usize];
                for _ in 0..slices {
                    if !database.merge_slice()? {
                        break;
                    }
                }
            }
            81 | 82 => {
                for _ in 0..=self.rng.below(4) {
                    database.merge_beside()?;
                }
            }
            83 => self.compact(database)?,
            84 | 85 if self.base.key.is_some() => self.reencrypt(database)?,
            84..=87 => self.snapshot(database, open),
            88..=91 => self.pass_time(database)?,
            92 | 93 => self.build_index(database)?,
            94..=96 if self.has_staged => self.stage(database, open)?,
            97 => self.back_up(database)?,
            _ => {}
        }
        Ok(())
    }

    /// A step of a life in which most merges go round by round.
    fn merging_step(&mut self, database: &Database, open: &mut Open, step: u64) -> Result<(), Error> {
        let kind = self.rng.below(100);
        self.note(&format!("step {step} of a merge, kind {kind}"));
        match kind {
            _ if step == 0 => self.rewrite_front(database)?,
            0 => self.rewrite_front(database)?,
            // Gives a merge up, if the collection is being merged.
            1 | 2 | 14 if is_left_out("abandon") => {}
            1 | 14 => {
                self.counts.clears += 1;
                self.transact(database, |_, transaction, state| {
                    transaction.clear("zoo", KeyRange::all())?;
                    records(state, "zoo").clear();
                    Ok(())
                })?;
                self.rewrite_front(database)?;
            }
            2 if self.rng.below(4) == 0 => self.drop_or_rename(database)?,
            3..=8 => {
                for _ in 0..[1, 3, 10][self.rng.below(3) as usize] {
                    if !database.merge_slice()? {
                        break;
                    }
                }
            }
            9 => drop(database.merge_beside()?),
            10 => self.snapshot(database, open),
            11 if self.rng.below(2) == 0 => self.pass_time(database)?,
            12 if self.has_staged => self.stage(database, open)?,
            13 if self.rng.below(4) == 0 => self.build_index(database)?,
            _ => {
                let changes = 1 + self.rng.below(8);
                self.commit(database, changes)?;
            }
        }
        Ok(())
    }

    /// Replaces the front of the collection, by values out of line or short ones, some of which
    /// expire.
    fn rewrite_front(&mut self, database: &Database) -> Result<(), Error> {
        let is_long = self.rng.below(2) == 0;
        let expires = self.rng.below(3) == 0 && !is_left_out("expiry");
        self.transact(database, |chain, transaction, state| {
            for number in 0..FRONT {
                let mut record = chain.record(if is_long { 700 } else { 3 });
                if expires {
                    record.expires = chain.now() + 1 + chain.rng.below(100_000);
                }
                let expires_at = (record.expires != 0).then_some(record.expires);
                transaction.put_until("a", &key(number), &record.value(), expires_at)?;
                records(state, "a").insert(key(number), record);
            }
            Ok(())
        })
    }

    fn durability(&mut self) -> Durability {
        match self.rng.below(8) {
            0 if !self.is_merging => Durability::None,
            0..=3 => Durability::Relaxed,
            _ => Durability::Strict,
        }
    }

    /// Commits what `work` makes of a transaction and the model.
    fn transact(
        &mut self,
        database: &Database,
        work: impl FnOnce(&mut Self, &mut ExclusiveTransaction<'_>, &mut State) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let base = database.version();
        self.history.truncate(base);
        let mut state = State::clone(&self.history.state(base));
        let durability = self.durability();
        let mut transaction = database.begin()?;
        work(self, &mut transaction, &mut state)?;
        let version = transaction.seal().version;
        self.history.states.entry(version).or_insert_with(|| Arc::new(state));
        transaction.commit(durability)?;
        self.counts.commits += 1;
        match durability {
            Durability::Strict => self.history.acknowledge(version),
            Durability::Relaxed => self.history.handed_over = version,
            Durability::None => {}
        }
        Ok(())
    }

    fn commit(&mut self, database: &Database, changes: u64) -> Result<(), Error> {
        // Rewrites the front of the collection, which earlier lives and rounds have merged.
        let front = self.rng.below(5) == 0;
        self.transact(database, |chain, transaction, state| {
            for _ in 0..changes {
                let name = ["a", "a", "a", "a", "a", "a", "b", "zoo"][chain.rng.below(8) as usize];
                let span = if front { FRONT } else { RECORDS };
                let key = key(chain.rng.below(if name == "a" { span } else { 100 }));
                if chain.rng.below(8) == 0 {
                    transaction.discard(name, &key)?;
                    if let Some(all) = state.get_mut(name) {
                        Arc::make_mut(all).remove(&key);
                    }
                    continue;
                }
                let record = chain.any_record();
                let expires = (record.expires != 0).then_some(record.expires);
                transaction.put_until(name, &key, &record.value(), expires)?;
                records(state, name).insert(key, record);
            }
            Ok(())
        })
    }

    fn clear(&mut self, database: &Database) -> Result<(), Error> {
        self.counts.clears += 1;
        let name = ["zoo", "zoo", "b", "a"][self.rng.below(4) as usize];
        let is_whole = name == "zoo" || self.rng.below(8) == 0;
        let first = self.rng.below(RECORDS);
        let (lower, upper) = (key(first), key(first + [20, 300, 2000][self.rng.below(3) as usize]));
        self.transact(database, |_, transaction, state| {
            let range = if is_whole {
                KeyRange::all()
            } else {
                KeyRange {
                    lower: Bound::Included(&lower),
                    upper: Bound::Excluded(&upper),
                }
            };
            transaction.clear(name, range)?;
            if let Some(all) = state.get_mut(name) {
                Arc::make_mut(all).retain(|key, _| !is_whole && (*key < lower || *key >= upper));
            }
            Ok(())
        })
    }

    fn drop_or_rename(&mut self, database: &Database) -> Result<(), Error> {
        let is_rename = self.rng.below(2) == 0;
        self.counts.renames += u64::from(is_rename);
        self.counts.drops += u64::from(!is_rename);
        self.transact(database, |chain, transaction, state| {
            if !is_rename {
                let name = ["b", "c", "zoo"][chain.rng.below(3) as usize];
                transaction.drop_collection(name)?;
                state.remove(name);
                return Ok(());
            }
            let (from, to) = if state.contains_key("c") {
                ("c", "b")
            } else {
                ("b", "c")
            };
            if state.contains_key(from) && !state.contains_key(to) {
                transaction.rename_collection(from, to)?;
                if let Some(all) = state.remove(from) {
                    state.insert(to.to_owned(), all);
                }
            }
            Ok(())
        })
    }

    fn compact(&mut self, database: &Database) -> Result<(), Error> {
        self.counts.compactions += 1;
        let version = database.version();
        let mut left = 1 + self.rng.below(12);
        let options = CompactOptions {
            slice_bytes: 2048,
            threshold_bytes: 4096,
        };
        database.compact(options, &mut |_| {
            left -= 1;
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if database.stats().durable_version >= version {
            self.history.acknowledge(version);
        }
        Ok(())
    }

    fn reencrypt(&mut self, database: &Database) -> Result<(), Error> {
        self.counts.reencryptions += 1;
        let version = database.version();
        let mut left = 1 + self.rng.below(12);
        let options = ReencryptOptions {
            slice_bytes: 4096,
            ..ReencryptOptions::default()
        };
        database.reencrypt(options, &mut |_| {
            left -= 1;
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if database.stats().durable_version >= version {
            self.history.acknowledge(version);
        }
        Ok(())
    }

    fn snapshot(&mut self, database: &Database, open: &mut Open) {
        if open.snapshots.len() < 3 && self.rng.below(2) == 0 {
            let snapshot = database.snapshot();
            let held = self.storage.hold_snapshot(&snapshot);
            let state = self.history.state(snapshot.version());
            open.snapshots.push((Some(held), snapshot, state, self.now()));
            self.counts.snapshots += 1;
        } else if !open.snapshots.is_empty() {
            let index = self.rng.below(open.snapshots.len() as u64) as usize;
            let (held, snapshot, state, then) = open.snapshots.swap_remove(index);
            // A read behind a cut fails by itself.
            if let Err(what) = difference(&snapshot, &state, then, &mut self.rng) {
                panic!("a snapshot of version {} changed: {what}", snapshot.version());
            }
            drop(held);
        }
    }

    fn pass_time(&mut self, database: &Database) -> Result<(), Error> {
        self.counts.jumps += 1;
        let jump = [10, 5_000, 60_000][self.rng.below(3) as usize];
        self.now.fetch_add(self.rng.below(jump), Ordering::Relaxed);
        if self.rng.below(2) == 0 {
            return Ok(());
        }
        let base = database.version();
        let now = self.now();
        self.history.truncate(base);
        let mut state = State::clone(&self.history.state(base));
        for all in state.values_mut() {
            Arc::make_mut(all).retain(|_, record| record.expires == 0 || record.expires > now);
        }
        self.history.states.insert(base + 1, Arc::new(state));
        let due = database.purge_expired(1_000_000)?;
        self.counts.purged += u64::from(due > 0);
        if database.version() > base {
            self.history.handed_over = database.version();
        }
        Ok(())
    }

    fn build_index(&mut self, database: &Database) -> Result<(), Error> {
        self.counts.index_builds += 1;
        let base = database.version();
        self.history.truncate(base);
        // Declaring and building commit what no record shows.
        self.history.allow_same(base, 20);
        let notes = database.indexed_collection("i", [by_first()])?;
        let mut left = self.rng.below(3);
        notes.build(&mut |_, _| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            ControlFlow::Continue(())
        })?;
        let version = database.version();
        self.history.truncate(version);
        let now = self.now();
        self.transact(database, |chain, transaction, state| {
            for _ in 0..chain.rng.below(30) {
                let key = key(chain.rng.below(300));
                if chain.rng.below(5) == 0 {
                    transaction.delete("i", &key)?;
                    records(state, "i").remove(&key);
                    continue;
                }
                let mut record = chain.any_record();
                if record.expires != 0 {
                    record.expires = now + 1 + chain.rng.below(100_000);
                }
                let expires = (record.expires != 0).then_some(record.expires);
                notes.set(transaction, &key, &record.value(), expires)?;
                records(state, "i").insert(key, record);
            }
            Ok(())
        })
    }

    /// Begins, continues, stores or drops a value that is written in parts.
    fn stage(&mut self, database: &Database, open: &mut Open) -> Result<(), Error> {
        if open.staged.is_empty() || open.staged.len() < 3 && self.rng.below(3) == 0 {
            let Ok(value) = database.stage_value("a") else {
                return Ok(());
            };
            let len = 200_000 + self.rng.below(2_500_000) as usize;
            let record = self.record(len);
            open.staged.push((None, value, record, 0));
        }
        let index = self.rng.below(open.staged.len() as u64) as usize;
        let (held, value, record, appended) = &mut open.staged[index];
        if *appended < record.len {
            let end = record.len.min(*appended + 700_000);
            value.append(&record.value()[*appended..end])?;
            *appended = end;
            *held = Some(self.storage.hold_staged(value));
            return Ok(());
        }
        let (held, value, record, _) = open.staged.swap_remove(index);
        if self.rng.below(4) == 0 {
            drop(held);
            return Ok(());
        }
        self.counts.staged += 1;
        let stored = key(self.rng.below(5));
        let done = self.transact(database, |_, transaction, state| {
            // Refused if its collection was dropped since.
            transaction.put_staged("a", &stored, value, None)?;
            records(state, "a").insert(stored, record);
            Ok(())
        });
        drop(held);
        done
    }

    fn back_up(&mut self, database: &Database) -> Result<(), Error> {
        let mut go_on = |_| ControlFlow::Continue(());
        let copy_options = |chain: &mut Self| Options {
            feed_commits: 0,
            ..chain.options()
        };
        let mut stream = Vec::new();
        if let Some(copy) = self.copy.as_ref().filter(|copy| copy.version < database.version())
            && self.base.feed_commits > 0
        {
            match database.backup_since(copy.version, &mut stream, &mut go_on) {
                Err(Error::TruncatedFeed { .. }) => {}
                other => {
                    other?;
                    let storage = copy.storage.clone();
                    let options = copy_options(self);
                    let target = Database::open(Arc::new(storage.clone()), options)?;
                    target.restore_commits(&mut &stream[..], &mut go_on)?;
                    self.compare(&target);
                    self.counts.incremental += 1;
                    let version = target.version();
                    target.close()?;
                    self.copy = Some(Copy { storage, version });
                    return Ok(());
                }
            }
        }
        stream.clear();
        let snapshot = database.snapshot();
        snapshot.backup(&mut stream, &mut go_on)?;
        drop(snapshot);
        let storage = MemoryStorage::new();
        let options = copy_options(self);
        let target: Arc<dyn Storage> = Arc::new(storage.clone());
        restore(&mut &stream[..], Arc::clone(&target), options, &mut go_on)?;
        let options = copy_options(self);
        let target = Database::open(target, options)?;
        self.compare(&target);
        self.counts.backups += 1;
        let version = target.version();
        target.close()?;
        self.copy = Some(Copy { storage, version });
        Ok(())
    }

    fn compare(&mut self, copy: &Database) {
        let state = self.history.state(copy.version());
        if let Err(what) = difference(&copy.snapshot(), &state, self.now(), &mut self.rng) {
            panic!("a backup of version {} differs: {what}", copy.version());
        }
    }
}
