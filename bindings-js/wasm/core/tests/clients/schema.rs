//! Schema versions: one client upgrades, and nobody else gets at the data meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

use super::common::{Reply, Request, op, set};
use super::{get, open};
use mangrove_bindings::session::Session;
use mangrove_engine::testing::sim::SimStorage;

const CURRENT: u8 = 0;
const UPGRADES: u8 = 1;
const WAITS: u8 = 2;
const NEWER: u8 = 3;
const INTERRUPTED: u8 = 4;

const CHANGED: Result<(), &str> = Err("KV_VERSION_CHANGED");

/// Sends a message of its own.
fn ask(session: &mut Session, client: u64, requests: &[Request]) -> Reply {
    static LAST: AtomicU64 = AtomicU64::new(0);
    super::ask(session, client, LAST.fetch_add(1, Ordering::Relaxed) + 1, requests)
}

fn attach(session: &mut Session, name: &str) -> u64 {
    let client = session.attach(name, false, None).expect("readable");
    let names = ["mangrove:schema", ""].into_iter().enumerate();
    let requests: Vec<Request> = names
        .map(|(index, name)| {
            Request::new(op("Use"))
                .uv(index as u64)
                .str(name)
                .str("any")
                .str("structured")
        })
        .collect();
    ask(session, client, &requests);
    client
}

fn status(mut reply: Reply) -> Result<(), &'static str> {
    reply.status().map_err(|code| match &*code {
        "KV_VERSION_CHANGED" => "KV_VERSION_CHANGED",
        "KV_READ_ONLY" => "KV_READ_ONLY",
        _ => "another error",
    })
}

/// Returns the standing, the version, and the version to come.
fn join(session: &mut Session, client: u64, version: u64) -> (u8, u64, u64) {
    let mut reply = ask(session, client, &[Request::new(op("SchemaJoin")).uv(version)]);
    assert_eq!(reply.status(), Ok(()));
    (reply.u8(), reply.uv(), reply.uv())
}

fn end(session: &mut Session, client: u64) {
    assert_eq!(status(ask(session, client, &[Request::new(op("SchemaEnd"))])), Ok(()));
}

/// Stores a record of the schema, as the package does.
fn store(session: &mut Session, client: u64, key: &str, value: &str) -> Result<(), &'static str> {
    status(ask(session, client, &[set(key, value)]))
}

fn upgrade(session: &mut Session, client: u64, version: u64) {
    assert_eq!(join(session, client, version).0, UPGRADES);
    let value = char::from(u8::try_from(version).expect("a small version")).to_string();
    assert_eq!(store(session, client, "\x30version", &value), Ok(()));
    end(session, client);
    assert_eq!(join(session, client, version), (CURRENT, version, version));
}

fn write(session: &mut Session, client: u64) -> Result<(), &'static str> {
    status(ask(
        session,
        client,
        &[Request::new(op("Set")).u8(0).uv(1).str("a").str("1")],
    ))
}

fn read(session: &mut Session, client: u64) -> Result<(), &'static str> {
    let by_message = status(ask(session, client, &[get(0, "a")]));
    session.select(client);
    let mut value = Vec::new();
    let at_once = session.get(mangrove_bindings::protocol::View::Current, 1, b"a", false, &mut value);
    assert_eq!(
        by_message.is_ok(),
        at_once.is_ok(),
        "lookups without messages ask when they may not"
    );
    by_message
}

#[test]
fn others_are_refused_while_a_client_upgrades_and_older_ones_afterwards() {
    let mut session = open(&SimStorage::new());
    let [old, new, third, unversioned] = ["old", "new", "third", "unversioned"].map(|name| attach(&mut session, name));
    upgrade(&mut session, old, 1);
    assert_eq!(write(&mut session, old), Ok(()));
    while session.next_to_wake().is_some() {}

    assert_eq!(join(&mut session, new, 2), (UPGRADES, 1, 2));
    assert_eq!(session.next_to_wake(), Some(old), "the old client learns of it");
    assert_eq!(session.next_to_wake(), None);
    assert_eq!(join(&mut session, old, 1), (WAITS, 1, 2));
    assert_eq!(join(&mut session, third, 2), (WAITS, 1, 2));
    for client in [old, third] {
        assert_eq!(write(&mut session, client), CHANGED);
        assert_eq!(read(&mut session, client), CHANGED);
    }
    assert_eq!(read(&mut session, unversioned), Ok(()));
    assert_eq!(write(&mut session, unversioned), CHANGED);
    assert_eq!(write(&mut session, new), Ok(()));
    assert_eq!(join(&mut session, new, 2), (UPGRADES, 1, 2), "it may ask again");
    assert_eq!(store(&mut session, new, "\x30version", "\x02"), Ok(()));
    end(&mut session, new);

    assert_eq!(join(&mut session, third, 2), (CURRENT, 2, 2));
    assert_eq!(join(&mut session, old, 1), (NEWER, 2, 2));
    assert_eq!(write(&mut session, old), CHANGED);
    for client in [new, third, unversioned] {
        assert_eq!(write(&mut session, client), Ok(()));
        assert_eq!(read(&mut session, client), Ok(()));
    }
}

#[test]
fn an_upgrade_ends_with_its_client_and_an_incomplete_one_shuts_the_database() {
    let mut session = open(&SimStorage::new());
    let [old, new, third] = ["old", "new", "third"].map(|name| attach(&mut session, name));
    upgrade(&mut session, old, 1);
    assert_eq!(join(&mut session, new, 2).0, UPGRADES);
    session.detach(new);
    assert_eq!(write(&mut session, old), Ok(()), "nothing was changed");

    assert_eq!(join(&mut session, third, 2).0, UPGRADES);
    assert_eq!(store(&mut session, third, "\x30upgrade", "\x01"), Ok(()));
    session.detach(third);
    assert_eq!(join(&mut session, old, 1), (INTERRUPTED, 1, 1));
    assert_eq!(write(&mut session, old), CHANGED);
    let fourth = attach(&mut session, "fourth");
    assert_eq!(join(&mut session, fourth, 2), (UPGRADES, 1, 2), "it continues");
}

#[test]
fn the_next_session_knows_who_upgrades() {
    let storage = SimStorage::new();
    let mut session = open(&storage);
    let [old, new] = ["old", "new"].map(|name| attach(&mut session, name));
    upgrade(&mut session, old, 1);
    assert_eq!(join(&mut session, new, 2).0, UPGRADES);
    let states = [old, new].map(|client| {
        session.select(client);
        session.take_state(true)
    });
    drop(session);

    let mut session = open(&storage);
    let [old_state, new_state] = states;
    let old = session.attach("old", false, old_state.as_deref()).expect("readable");
    let new = session.attach("new", false, new_state.as_deref()).expect("readable");
    let third = attach(&mut session, "third");
    assert_eq!(join(&mut session, third, 2), (WAITS, 1, 2));
    assert_eq!(write(&mut session, old), CHANGED);
    assert_eq!(write(&mut session, new), Ok(()));
    assert_eq!(store(&mut session, new, "\x30version", "\x02"), Ok(()));
    end(&mut session, new);
    assert_eq!(write(&mut session, new), Ok(()));
    assert_eq!(write(&mut session, old), CHANGED);
}

#[test]
fn a_client_that_only_reads_cannot_upgrade() {
    let mut session = open(&SimStorage::new());
    let reader = session.attach("reader", true, None).expect("readable");
    let refused = status(ask(&mut session, reader, &[Request::new(op("SchemaJoin")).uv(1)]));
    assert_eq!(refused, Err("KV_READ_ONLY"));
}
