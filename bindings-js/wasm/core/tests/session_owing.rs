//! Replies that wait for a flush while other clients are served: what everybody reads, what a decision
//! is made by, and what a power cut leaves, against a list of all states that the database was in.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use common::{Reply, Request, message, op, set};
use mangrove_bindings::protocol::{View, Writer};
use mangrove_bindings::session::{Progress, Session};
use mangrove_engine::testing::sim::{CrashPolicy, SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Database, Options};

/// Value and version by key.
type State = BTreeMap<String, (String, u64)>;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

fn options() -> Options {
    Options {
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(16 << 10),
            database_id: Some(1),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn open(storage: &SimStorage) -> Session {
    Session::new(Database::open(Arc::new(storage.clone()), options()).expect("every image opens"))
}

/// Declares the collection.
fn name_it() -> Request {
    Request::new(op("Use")).uv(0).str("").str("any").str("json")
}

fn get(view: u64, key: &str) -> Request {
    Request::new(op("Get")).uv(view).uv(0).str(key)
}

fn get_or_insert(key: &str, value: &str) -> Request {
    Request::new(op("GetOrInsert")).u8(0).uv(0).str(key).str(value).uv(0)
}

/// Sets the key if it has this version; `None` if it has to be missing.
fn set_checked(key: &str, version: Option<u64>, value: &str) -> Request {
    let batch = Request::new(op("Batch")).u8(0).uv(2);
    let batch = batch.u8(3).uv(0).str(key).uv(version.map_or(0, |version| version + 1));
    batch.u8(0).uv(0).str(key).str(value)
}

/// What the clients and the disk did, and what they may see of it.
struct World {
    storage: SimStorage,
    session: Session,
    clients: Vec<u64>,
    /// States by commit; the first is that before all of them.
    states: Vec<State>,
    /// The newest state whose reply was delivered, and all before: these survive, and are seen.
    acknowledged: usize,
    /// Replies that wait: the state that each acknowledges, and whether a flush has begun since.
    held: VecDeque<(usize, bool)>,
    is_flushing: bool,
    sequence: u64,
    lost: u64,
    decided: u64,
    waited: u64,
}

impl World {
    fn new() -> Self {
        let storage = SimStorage::new();
        let mut session = open(&storage);
        let clients = (0..3)
            .map(|index| {
                session
                    .attach(&format!("client {index}"), false, None)
                    .expect("there is room")
            })
            .collect();
        let mut world = Self {
            storage,
            session,
            clients,
            states: vec![State::new()],
            acknowledged: 0,
            held: VecDeque::new(),
            is_flushing: false,
            sequence: 0,
            lost: 0,
            decided: 0,
            waited: 0,
        };
        for index in 0..4 {
            world.ask(index, &[name_it()]);
        }
        world
    }

    fn newest(&self) -> &State {
        self.states.last().expect("there is the first one")
    }

    /// Sends a message of a client. The last one is the host's own: its messages are executed to their
    /// end, or owe what they can and wait for flushes otherwise.
    fn ask(&mut self, index: usize, requests: &[Request]) -> (Reply, bool) {
        self.sequence += 1;
        self.session.select(self.clients.get(index).copied().unwrap_or(0));
        self.session.begin_message(self.sequence);
        let mut out = Writer::default();
        let message = message(requests);
        let owes = if index < self.clients.len() {
            assert_eq!(self.session.execute_owing(&message, &mut out), Progress::Done);
            self.session.owes_flush()
        } else if self.sequence.is_multiple_of(2) {
            assert_eq!(self.session.execute_message(&message, &mut out), Progress::Done);
            false
        } else {
            self.start_owing(&message, &mut out)
        };
        (Reply::new(&out), owes)
    }

    fn start_owing(&mut self, message: &[u8], out: &mut Writer) -> bool {
        if self.session.start_owing(message, out) == Progress::Done {
            return self.session.owes_flush();
        }
        self.waited += 1;
        self.end_flush();
        if let Some(needs_data) = self.session.begin_flush() {
            self.flush_files(needs_data);
            self.session.end_flush(Ok(())).expect("the disk works");
        }
        for (state, _) in self.held.drain(..) {
            self.acknowledged = self.acknowledged.max(state);
        }
        assert_eq!(self.session.resume(message, out), Progress::Done);
        false
    }

    /// A message made the newest state.
    fn committed(&mut self, owes: bool) {
        let state = self.states.len() - 1;
        if owes {
            self.held.push_back((state, false));
        } else {
            self.acknowledged = state;
        }
    }

    fn step(&mut self, random: &mut SimRng, number: u64) {
        let client = usize::try_from(random.below(4)).expect("it is small");
        let (key, value) = (
            KEYS[usize::try_from(random.below(4)).expect("it is small")],
            format!("{number}"),
        );
        match random.below(9) {
            0 | 1 => {
                let (mut reply, owes) = self.ask(client, &[set(key, &value)]);
                assert_eq!(reply.status(), Ok(()));
                let mut state = self.newest().clone();
                state.insert(key.to_owned(), (value, reply.uv()));
                self.states.push(state);
                self.committed(owes);
            }
            2 => {
                let (mut reply, owes) = self.ask(client, &[get_or_insert(key, &value)]);
                assert_eq!(reply.status(), Ok(()));
                let version = reply.uv();
                let found = (reply.u8() == 1).then(|| reply.bytes());
                let expected = self.newest().get(key).map(|(value, _)| value.clone().into_bytes());
                assert_eq!(found, expected, "step {number}: {key}");
                if expected.is_none() {
                    let mut state = self.newest().clone();
                    state.insert(key.to_owned(), (value, version));
                    self.states.push(state);
                }
                self.decided += 1;
                self.committed(owes);
            }
            3 => {
                // By what some state had: right or wrong.
                let from = usize::try_from(random.below(3)).expect("it is small");
                let of = self.states.len().saturating_sub(1 + from);
                let version = self.states[of].get(key).map(|(_, version)| *version);
                let (mut reply, owes) = self.ask(client, &[set_checked(key, version, &value)]);
                let expected = self.newest().get(key).map(|(_, version)| *version) == version;
                let status = reply.status();
                assert_eq!(status.is_ok(), expected, "step {number}: {status:?}");
                if expected {
                    let mut state = self.newest().clone();
                    state.insert(key.to_owned(), (value, reply.uv()));
                    self.states.push(state);
                }
                self.decided += 1;
                self.committed(owes);
            }
            4 => {
                let (mut reply, owes) = self.ask(client, &[get(0, key)]);
                assert_eq!(reply.status(), Ok(()));
                assert!(!owes, "a read does not wait");
                self.check_read(key, reply.optional().as_deref(), number);
            }
            5 => {
                let requests = [
                    Request::new(op("TransactionOpen")).uv(1).u8(0),
                    get(1, key),
                    set(key, &value).within(1),
                    Request::new(op("TransactionCommit")).uv(1).u8(0),
                ];
                let (mut reply, owes) = self.ask(client, &requests);
                assert_eq!(reply.status(), Ok(()));
                let base = reply.uv();
                assert_eq!(reply.status(), Ok(()));
                let read = reply.optional();
                self.check_read(key, read.as_deref(), number);
                assert_eq!(reply.status(), Ok(()));
                reply.uv();
                let newest = self.newest().get(key).cloned();
                let has_changed = newest.as_ref().is_some_and(|(_, version)| *version > base);
                match reply.status() {
                    Ok(()) => {
                        assert!(!has_changed, "step {number}: a change was overlooked");
                        assert_eq!(read, newest.map(|(value, _)| value.into_bytes()));
                        let mut state = self.newest().clone();
                        state.insert(key.to_owned(), (value, reply.uv()));
                        self.states.push(state);
                        self.committed(owes);
                    }
                    Err(code) => {
                        assert_eq!((code.as_str(), has_changed), ("KV_CONFLICT", true), "step {number}");
                        assert!(owes, "the next try would lose as well");
                        self.held.push_back((0, false));
                        self.lost += 1;
                    }
                }
            }
            6 | 7 => self.begin_flush(),
            _ => self.end_flush(),
        }
    }

    fn check_read(&self, key: &str, found: Option<&[u8]>, number: u64) {
        let mut seen = self.states[self.acknowledged..].iter();
        let is_one = |state: &State| state.get(key).map(|(value, _)| value.as_bytes()) == found;
        assert!(
            seen.any(is_one),
            "step {number}: {key} was {found:?} before the last acknowledged commit"
        );
    }

    fn begin_flush(&mut self) {
        if self.is_flushing {
            return;
        }
        if let Some(needs_data) = self.session.begin_flush() {
            self.is_flushing = true;
            self.session.release_flush();
            self.flush_files(needs_data);
        }
        let is_flushing = self.is_flushing;
        for (state, has_begun) in &mut self.held {
            *has_begun = true;
            // There was nothing left to flush.
            if !is_flushing {
                self.acknowledged = self.acknowledged.max(*state);
            }
        }
        if !is_flushing {
            self.held.clear();
        }
    }

    fn flush_files(&self, needs_data: bool) {
        for name in if needs_data { &["data", "log"][..] } else { &["log"] } {
            let file = self.storage.writer(name).expect("it is open");
            file.flush().expect("the disk works");
        }
    }

    fn end_flush(&mut self) {
        if !std::mem::take(&mut self.is_flushing) {
            return;
        }
        self.session.end_flush(Ok(())).expect("the disk works");
        while let Some((state, true)) = self.held.front() {
            self.acknowledged = self.acknowledged.max(*state);
            self.held.pop_front();
        }
    }

    /// What a power cut leaves has to be one of the states from the last acknowledged one on.
    fn cut_power(self, seed: u64, policy: CrashPolicy) -> usize {
        let storage = SimStorage::from_files(self.storage.crash(policy, seed));
        drop(self.session);
        let database = Database::open(Arc::new(storage), options()).expect("every image opens");
        let snapshot = database.snapshot();
        let collection = snapshot.collection("");
        let mut left = State::new();
        for key in KEYS {
            let entry = collection
                .as_ref()
                .and_then(|tree| tree.entry(key.as_bytes()).expect("it is readable"));
            if let Some(entry) = entry {
                let value = String::from_utf8(entry.value.clone()).expect("UTF-8");
                left.insert(key.to_owned(), (value, entry.version));
            }
        }
        let survivors = &self.states[self.acknowledged..];
        let at = survivors.iter().position(|state| *state == left);
        at.unwrap_or_else(|| panic!("seed {seed}: {left:?} is none of {survivors:?}"))
    }
}

#[test]
fn clients_whose_replies_wait_for_flushes_decide_by_the_newest_state_and_lose_nothing() {
    let (mut lost, mut decided, mut waited, mut unacknowledged, mut cut) = (0, 0, 0, 0, 0);
    for seed in 1..=400 {
        let mut random = SimRng::new(seed);
        let mut world = World::new();
        for number in 0..20 + random.below(60) {
            world.step(&mut random, number);
        }
        lost += world.lost;
        decided += world.decided;
        waited += world.waited;
        unacknowledged += u64::from(!world.held.is_empty());
        let (states, acknowledged) = (world.states.len(), world.acknowledged);
        let policy = if seed % 2 == 0 {
            CrashPolicy::Nothing
        } else {
            CrashPolicy::Everything
        };
        let survived = acknowledged + world.cut_power(seed, policy);
        cut += u64::from(survived + 1 < states);
    }
    println!(
        "{decided} decisions, {lost} lost transactions, {waited} messages that waited, {unacknowledged} runs with held replies, {cut} cut short"
    );
    assert!(lost > 100 && decided > 1000 && waited > 100 && unacknowledged > 50 && cut > 20);
}

#[test]
fn only_the_end_of_a_message_is_owed_and_closing_the_first_client_leaves_the_database_open() {
    let mut world = World::new();
    let (mut reply, owes) = world.ask(0, &[set("a", "1")]);
    assert_eq!((reply.status(), owes), (Ok(()), false), "it creates the collection");
    let count = Request::new(op("Count")).uv(0).uv(0).u8(0);
    let (mut reply, owes) = world.ask(0, &[set("b", "1"), count, set("c", "1")]);
    assert!(owes);
    assert_eq!((reply.status(), reply.uv() > 0), (Ok(()), true));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
    let (mut reply, _) = world.ask(1, &[get(0, "b"), get(0, "c")]);
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
    assert_eq!(
        (reply.status(), reply.optional()),
        (Ok(()), None),
        "not before the flush"
    );
    // The first client looks up without a message.
    world.ask(3, &[]);
    let look = |session: &mut Session| {
        let mut value = Vec::new();
        let found = session.get(View::Current, 0, b"c", false, &mut value);
        found.expect("it is readable")
    };
    assert!(!look(&mut world.session));
    world.begin_flush();
    assert!(!look(&mut world.session));
    world.end_flush();
    assert!(look(&mut world.session), "the flush made it visible");
    world.session.keep_open(true);
    let (mut reply, _) = world.ask(3, &[Request::new(op("Close"))]);
    assert_eq!(reply.status(), Ok(()));
    let (mut reply, _) = world.ask(3, &[get(0, "b")]);
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
    let (mut reply, _) = world.ask(1, &[get(0, "b")]);
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
    world.session.keep_open(false);
    let (mut reply, _) = world.ask(3, &[Request::new(op("Close"))]);
    assert_eq!(reply.status(), Ok(()));
    let (mut reply, _) = world.ask(1, &[get(0, "b")]);
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
}

/// The next leader opens the database with those commits, so it would never tell a follower of them.
#[test]
fn what_is_handed_over_has_the_commits_whose_flush_is_owed() {
    for is_flushing in [false, true] {
        let mut world = World::new();
        world.ask(0, &[set("a", "1")]);
        let (mut reply, _) = world.ask(1, &[Request::new(op("ChangesOpen")).uv(5).uv(0).u8(1).uv(0).u8(0)]);
        assert_eq!(reply.status(), Ok(()));
        let (mut reply, owes) = world.ask(0, &[set("b", "2")]);
        assert_eq!((reply.status(), owes), (Ok(()), true));
        let version = reply.uv();
        if is_flushing {
            world.begin_flush();
        }
        world.session.select(world.clients[1]);
        let state = world.session.take_state(true).expect("it is asked for the last time");
        world.end_flush();
        let World { storage, session, .. } = world;
        drop(session);
        let mut session = open(&storage);
        let client = session.attach("client 1", false, Some(&state)).expect("there is room");
        session.select(client);
        session.begin_message(1);
        let mut out = Writer::default();
        let next = message(&[name_it(), Request::new(op("ChangesNext")).uv(5).uv(1000)]);
        assert_eq!(session.execute_message(&next, &mut out), Progress::Done);
        let mut reply = Reply::new(&out);
        assert_eq!((reply.status(), reply.status()), (Ok(()), Ok(())));
        reply.u8();
        assert_eq!(reply.uv(), version, "flushing: {is_flushing}");
        assert!(!reply.bytes().is_empty());
    }
}
