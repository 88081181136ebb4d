//! Followers of clients whose replies wait for flushes, across leaders that close, hand over or are
//! killed: each commit is read once and in order, or the follower is told that it misses some. The oracle
//! is a list of all commits, which the test makes itself.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Reply, Request, message, op};
use mangrove_bindings::protocol::Writer;
use mangrove_bindings::session::{Progress, Session};
use mangrove_engine::testing::sim::{SimRng, SimStorage};
use mangrove_engine::{AdvancedOptions, Database, Options};

const CLIENTS: usize = 3;
const NAMES: [&str; 2] = ["", "other"];
/// What a follower follows: one of the collections, or both.
const BOTH: usize = 2;
/// Durabilities of commits: the last one is lost with its leader, unless a later commit is kept.
const STRICT: u8 = 0;
const NONE: u8 = 2;

fn pick(random: &mut SimRng, limit: usize) -> usize {
    usize::try_from(random.below(limit as u64)).expect("it is small")
}

/// Numbers of openings, which have to differ.
static OPENINGS: AtomicU64 = AtomicU64::new(1);

/// A session, and the version at which it has opened the database.
fn open(storage: &SimStorage) -> (Session, u64) {
    let options = Options {
        advanced: AdvancedOptions {
            database_id: Some(1),
            log_bytes: Some(32 << 10),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(storage.clone()), options).expect("every image opens");
    let version = database.version();
    let mut session = Session::new(database);
    session.begin_inheritance(OPENINGS.fetch_add(1, Ordering::Relaxed));
    (session, version)
}

fn set(collection: usize, value: u64, durability: u8) -> Request {
    Request::new(op("Set"))
        .u8(durability)
        .uv(collection as u64)
        .str("key")
        .str(&value.to_string())
}

fn use_collection(collection: usize) -> Request {
    Request::new(op("Use"))
        .uv(collection as u64)
        .str(NAMES[collection])
        .str("any")
        .str("json")
}

fn follow(what: usize) -> Request {
    let request = Request::new(op("ChangesOpen")).uv(1).uv(0);
    match what {
        BOTH => request.u8(0),
        collection => request.u8(1).uv(collection as u64).u8(0),
    }
}

fn next() -> Request {
    Request::new(op("ChangesNext")).uv(1).uv(64)
}

/// A request and how its reply is read.
#[derive(Clone, Copy)]
enum Ask {
    Set(usize, u8),
    Follow(usize),
    Next,
}

struct Sent {
    bytes: Vec<u8>,
    asks: Vec<Ask>,
}

struct Client {
    id: u64,
    sequence: u64,
    /// What it has open, as a leader last reported it.
    state: Option<Vec<u8>>,
    flight: Option<Sent>,
    /// What its follower follows, and the version up to which it has seen all of that.
    follower: Option<(usize, u64)>,
    /// It has seen commits that were lost.
    is_misled: bool,
}

struct World {
    storage: SimStorage,
    session: Session,
    clients: Vec<Client>,
    /// Version and collection of each commit.
    commits: Vec<(u64, usize)>,
    /// Versions of those that may be lost with the leader.
    doubtful: Vec<u64>,
    /// Replies that wait.
    held: VecDeque<Held>,
    is_flushing: bool,
    value: u64,
    seen: u64,
    truncated: u64,
    handed_over: u64,
    ignored: u64,
    lost: u64,
    misled: u64,
}

impl World {
    fn new() -> Self {
        let storage = SimStorage::new();
        let (session, _) = open(&storage);
        let mut world = Self {
            storage,
            session,
            clients: Vec::new(),
            commits: Vec::new(),
            doubtful: Vec::new(),
            held: VecDeque::new(),
            is_flushing: false,
            value: 0,
            seen: 0,
            truncated: 0,
            handed_over: 0,
            ignored: 0,
            lost: 0,
            misled: 0,
        };
        for index in 0..CLIENTS {
            let id = world.attach(index, None);
            world.clients.push(Client {
                id,
                sequence: 0,
                state: None,
                flight: None,
                follower: None,
                is_misled: false,
            });
            world.session.select(id);
            world.session.begin_message(0);
            let mut out = Writer::default();
            let first = [
                use_collection(0),
                use_collection(1),
                set(0, 0, STRICT),
                set(1, 0, STRICT),
            ];
            assert_eq!(
                world.session.execute_message(&message(&first), &mut out),
                Progress::Done
            );
            let mut reply = Reply::new(&out);
            assert_eq!((reply.status(), reply.status()), (Ok(()), Ok(())));
            for collection in 0..2 {
                assert_eq!(reply.status(), Ok(()));
                world.commits.push((reply.uv(), collection));
            }
            world.clients[index].state = world.session.take_state(false);
        }
        world
    }

    fn attach(&mut self, index: usize, state: Option<&[u8]>) -> u64 {
        let name = format!("client {index}");
        self.session.attach(&name, false, state).expect("there is room")
    }

    fn step(&mut self, random: &mut SimRng) {
        match random.below(12) {
            0 => self.begin_flush(),
            1 | 2 => self.end_flush(),
            3 if random.below(3) == 0 => self.change_leader(random),
            _ => {
                let index = pick(random, CLIENTS);
                if self.clients[index].flight.is_none() {
                    self.send(index, random);
                }
            }
        }
    }

    fn send(&mut self, index: usize, random: &mut SimRng) {
        let mut asks = Vec::new();
        for _ in 0..=random.below(3) {
            asks.push(match random.below(5) {
                0 | 1 => Ask::Set(pick(random, 2), if random.below(3) == 0 { NONE } else { STRICT }),
                2 if self.clients[index].follower.is_none() => Ask::Follow(pick(random, 3)),
                _ if self.clients[index].follower.is_some() => Ask::Next,
                _ => Ask::Set(pick(random, 2), STRICT),
            });
        }
        // A follower is opened once.
        let mut has_followed = false;
        asks.retain(|ask| !matches!(ask, Ask::Follow(_)) || !std::mem::replace(&mut has_followed, true));
        let requests: Vec<Request> = asks
            .iter()
            .map(|ask| match ask {
                Ask::Set(collection, durability) => {
                    self.value += 1;
                    set(*collection, self.value, *durability)
                }
                Ask::Follow(what) => follow(*what),
                Ask::Next => next(),
            })
            .collect();
        self.clients[index].sequence += 1;
        self.clients[index].flight = Some(Sent {
            bytes: message(&requests),
            asks,
        });
        self.execute(index);
    }

    fn execute(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let sent = client.flight.as_ref().expect("there is a request");
        self.session.select(client.id);
        self.session.begin_message(client.sequence);
        let mut out = Writer::default();
        assert_eq!(self.session.execute_owing(&sent.bytes, &mut out), Progress::Done);
        let owes = self.session.owes_flush();
        let answers = read(&out, &sent.asks);
        // A commit is known when it is made, whether or not anybody is told.
        for (answer, ask) in answers.iter().zip(&sent.asks) {
            if let (Answer::Version(version), Ask::Set(collection, durability)) = (answer, ask)
                && !self.commits.contains(&(*version, *collection))
            {
                let newest = self.commits.last().map_or(0, |(newest, _)| *newest);
                assert!(*version > newest, "{version} after {newest}");
                self.commits.push((*version, *collection));
                if *durability == NONE {
                    self.doubtful.push(*version);
                }
            }
        }
        let state = self.session.take_state(false);
        if owes {
            self.held.push_back(Held {
                index,
                answers,
                state,
                has_begun: false,
            });
        } else {
            self.deliver(index, &answers, state);
        }
    }

    fn deliver(&mut self, index: usize, answers: &[Answer], state: Option<Vec<u8>>) {
        let client = &mut self.clients[index];
        let sent = client.flight.take().expect("it waits");
        if state.is_some() {
            client.state = state;
        }
        for (at, (answer, ask)) in answers.iter().zip(&sent.asks).enumerate() {
            match (answer, ask) {
                (Answer::Version(version), Ask::Follow(what)) => {
                    client.follower = Some((*what, *version));
                    client.is_misled = false;
                    // What was asked after it comes after it, though another leader has made it already.
                    for later in &answers[at + 1..] {
                        assert!(!matches!(later, Answer::Version(commit) if commit <= version));
                    }
                }
                (Answer::Commits { reached, commits }, _) => {
                    // It was cut off by the same message.
                    let Some((what, mut seen)) = client.follower else {
                        continue;
                    };
                    assert!(
                        !client.is_misled,
                        "it has seen up to {seen}, and is not told that some of that was lost"
                    );
                    for version in commits {
                        let missed = self
                            .commits
                            .iter()
                            .find(|(commit, of)| *commit > seen && (what == BOTH || *of == what));
                        assert_eq!(
                            missed.map(|(commit, _)| *commit),
                            Some(*version),
                            "after {seen}, of {what}"
                        );
                        seen = *version;
                        self.seen += 1;
                    }
                    let missed = self
                        .commits
                        .iter()
                        .find(|(commit, of)| (seen + 1..=*reached).contains(commit) && (what == BOTH || *of == what));
                    assert_eq!(missed, None, "it has {seen}, and is said to have all up to {reached}");
                    client.follower = Some((what, seen.max(*reached)));
                }
                (Answer::Truncated, _) => {
                    self.truncated += 1;
                    self.misled += u64::from(std::mem::take(&mut client.is_misled));
                    client.follower = None;
                }
                _ => {}
            }
        }
    }

    fn begin_flush(&mut self) {
        if self.is_flushing {
            return;
        }
        if let Some(needs_data) = self.session.begin_flush() {
            self.is_flushing = true;
            self.session.release_flush();
            for name in if needs_data { &["data", "log"][..] } else { &["log"] } {
                let file = self.storage.writer(name).expect("it is open");
                file.flush().expect("the disk works");
            }
        }
        for held in &mut self.held {
            held.has_begun = true;
        }
        if !self.is_flushing {
            self.answer_held();
        }
    }

    fn end_flush(&mut self) {
        if std::mem::take(&mut self.is_flushing) {
            self.session.end_flush(Ok(())).expect("the disk works");
            self.answer_held();
        }
    }

    fn answer_held(&mut self) {
        while self.held.front().is_some_and(|held| held.has_begun) {
            let Held {
                index, answers, state, ..
            } = self.held.pop_front().expect("it is there");
            self.deliver(index, &answers, state);
        }
    }

    /// The leader closes, or is killed with the commits in the hands of the system.
    fn change_leader(&mut self, random: &mut SimRng) {
        let is_planned = random.below(3) > 0;
        if is_planned {
            // Some leaders answer before they hand over, others do not get to it.
            if random.below(2) == 0 {
                self.session.settle();
                for held in &mut self.held {
                    held.has_begun = true;
                }
                self.answer_held();
            }
            for index in 0..CLIENTS {
                self.session.select(self.clients[index].id);
                let state = self.session.take_state(true);
                let client = &mut self.clients[index];
                // What is open after a request that has no reply is of no use.
                if client.flight.is_some() {
                    self.ignored += 1;
                } else {
                    client.state = state;
                    self.handed_over += 1;
                }
            }
            self.session.select(0);
            let closed = self
                .session
                .execute_message(&message(&[Request::new(op("Close"))]), &mut Writer::default());
            assert_eq!(closed, Progress::Done);
        }
        self.held.clear();
        self.is_flushing = false;
        let closed = std::mem::replace(&mut self.session, open(&SimStorage::new()).0);
        drop(closed);
        let (session, version) = open(&self.storage);
        self.session = session;
        for (lost, _) in self.commits.iter().filter(|(commit, _)| *commit > version) {
            assert!(self.doubtful.contains(lost), "{lost} is lost, which was to be kept");
            self.lost += 1;
        }
        self.commits.retain(|(commit, _)| *commit <= version);
        self.doubtful.clear();
        for client in &mut self.clients {
            client.is_misled |= client.follower.is_some_and(|(_, seen)| seen > version);
        }
        let mut turns: Vec<usize> = (0..CLIENTS).collect();
        turns.rotate_left(pick(random, CLIENTS));
        for index in turns {
            let state = self.clients[index].state.clone();
            self.clients[index].id = self.attach(index, state.as_deref());
            if self.clients[index].flight.is_some() {
                self.execute(index);
            }
        }
    }
}

/// What a reply says.
enum Answer {
    /// Of the commit, or after which a follower reads.
    Version(u64),
    Commits {
        reached: u64,
        commits: Vec<u64>,
    },
    Truncated,
}

struct Held {
    index: usize,
    answers: Vec<Answer>,
    /// Goes with the reply.
    state: Option<Vec<u8>>,
    /// A flush has begun since.
    has_begun: bool,
}

fn read(out: &Writer, asks: &[Ask]) -> Vec<Answer> {
    let mut reply = Reply::new(out);
    let answers = asks
        .iter()
        .map(|ask| match (ask, reply.status()) {
            (Ask::Next, Ok(())) => {
                reply.u8();
                Answer::Commits {
                    reached: reply.uv(),
                    commits: versions(&reply.bytes()),
                }
            }
            (Ask::Next | Ask::Follow(_), Err(code)) => {
                // It may have been opened by a request that another leader has to execute again.
                assert!(code == "KV_TRUNCATED_FEED" || code == "KV_CLOSED", "{code}");
                Answer::Truncated
            }
            (_, status) => {
                assert_eq!(status, Ok(()));
                Answer::Version(reply.uv())
            }
        })
        .collect();
    assert!(reply.is_at_end());
    answers
}

/// Versions of the commits that a follower is sent. Each sets one record.
fn versions(commits: &[u8]) -> Vec<u64> {
    let mut out = Writer::default();
    out.raw(commits);
    let mut reply = Reply::new(&out);
    let mut names = 0;
    let mut versions = Vec::new();
    while !reply.is_at_end() {
        versions.push(reply.uv());
        for _ in 0..reply.uv() {
            assert_eq!(reply.u8(), 1, "a record is set");
            if reply.uv() == names {
                names += 1;
                reply.bytes();
            }
            reply.bytes();
            reply.bytes();
            reply.uv();
        }
    }
    versions
}

#[test]
fn followers_read_each_commit_once_or_are_told_that_they_miss_some() {
    let (mut seen, mut truncated, mut handed_over, mut ignored) = (0, 0, 0, 0);
    let (mut lost, mut misled) = (0, 0);
    for seed in 1..=3000 {
        let mut random = SimRng::new(seed);
        let mut world = World::new();
        for _ in 0..40 + random.below(80) {
            world.step(&mut random);
        }
        seen += world.seen;
        truncated += world.truncated;
        handed_over += world.handed_over;
        ignored += world.ignored;
        lost += world.lost;
        misled += world.misled;
    }
    println!("{seen} commits seen, {truncated} followers cut off, {handed_over} states handed over, {ignored} ignored");
    println!("{lost} commits lost, {misled} followers told of that");
    assert!(seen > 1000 && truncated > 50 && handed_over > 500 && ignored > 100);
    assert!(lost > 200 && misled > 20);
}
