//! Clients of one session: each has its own collections and snapshots, a repeated commit is made
//! once even across sessions, and the next session continues what is open.

pub(crate) mod common;
#[path = "clients/schema.rs"]
mod schema;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Reply, Request, declare, keys, message, op, put, set, use_index};
use mangrove_bindings::protocol::{REPLY_BYTES, Writer};
use mangrove_bindings::session::{Progress, Session};
use mangrove_engine::testing::sim::{CrashPolicy, SimStorage};
use mangrove_engine::{AdvancedOptions, Database, Options};

fn options() -> Options {
    Options {
        cache_bytes: 64 << 10,
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

/// Numbers of openings, which have to differ.
static OPENINGS: AtomicU64 = AtomicU64::new(1);

fn open(storage: &SimStorage) -> Session {
    let database = Database::open(Arc::new(storage.clone()), options()).expect("every image opens");
    let mut session = Session::new(database);
    session.begin_inheritance(OPENINGS.fetch_add(1, Ordering::Relaxed));
    session
}

fn ask(session: &mut Session, client: u64, seq: u64, requests: &[Request]) -> Reply {
    session.select(client);
    session.begin_message(seq);
    let mut out = Writer::default();
    let progress = session.execute_message(&message(requests), &mut out);
    assert_eq!(progress, Progress::Done);
    Reply::new(&out)
}

fn name_it() -> Request {
    Request::new(op("Use")).uv(0).str("").str("any").str("json")
}

fn get(view: u64, key: &str) -> Request {
    Request::new(op("Get")).uv(view).uv(0).str(key)
}

fn count() -> Request {
    Request::new(op("Count")).uv(0).uv(0).u8(0)
}

fn snapshot(id: u64) -> Request {
    Request::new(op("SnapshotOpen")).uv(id)
}

const REVERSE: u8 = 1;
const KEYS: u8 = 2;
const VALUES: u8 = 4;
const KEEP: u8 = 8;
const META: u8 = 16;

fn scan_open(id: u64, view: u64, items: u64) -> Request {
    Request::new(op("ScanOpen"))
        .uv(id)
        .uv(view)
        .uv(0)
        .u8(0)
        .u8(KEYS)
        .uv(0)
        .uv(0)
        .uv(items)
        .uv(0)
}

fn scan_next(id: u64, items: u64) -> Request {
    Request::new(op("ScanNext")).uv(id).uv(items).uv(0)
}

fn get_or_insert(key: &str, value: &str) -> Request {
    Request::new(op("GetOrInsert")).u8(0).uv(0).str(key).str(value).uv(0)
}

fn fill(session: &mut Session, client: u64, seq: u64, count: u64) {
    let requests: Vec<Request> = (0..count).map(|index| set(&format!("{index:03}"), "1")).collect();
    ask(session, client, seq, &requests);
}

/// Several commits, which become durable in several steps, one of them by a transaction.
fn work() -> Vec<Request> {
    vec![
        name_it(),
        set("a", "1"),
        get(0, "a"),
        Request::new(op("Delete")).u8(0).uv(0).str("old"),
        count(),
        get_or_insert("b", "first"),
        set("large", &"x".repeat(5000)),
        count(),
        // Appends to a value that is written in parts, and stores it.
        Request::new(2)
            .uv(8)
            .uv(0)
            .uv(0)
            .str(&"y".repeat(1_100_000))
            .into_part(),
        Request::new(3).uv(8).uv(0).str("parts").uv(0).into_part(),
        Request::new(op("TransactionOpen")).uv(7).u8(0),
        set("t", "2").within(7),
        Request::new(op("TransactionCommit")).uv(7).u8(0),
        Request::new(op("Delete")).u8(0).uv(0).str("old"),
        set("c", "3"),
    ]
}

/// Returns the replies to `work` as text. Versions show whether a commit was made once.
fn outcomes(mut reply: Reply) -> Vec<String> {
    let mut all = Vec::new();
    let mut next = |reply: &mut Reply, read: &mut dyn FnMut(&mut Reply) -> String| {
        let status = reply.status();
        all.push(match status {
            Ok(()) => read(reply),
            Err(code) => code,
        });
    };
    let version = |reply: &mut Reply| format!("v{}", reply.uv());
    next(&mut reply, &mut |_| String::new());
    next(&mut reply, &mut |reply| version(reply));
    // A repeated read may see writes that follow it in the message.
    next(&mut reply, &mut |reply| format!("read {}", reply.optional().is_some()));
    next(&mut reply, &mut |reply| format!("{} {}", version(reply), reply.u8()));
    next(&mut reply, &mut |reply| format!("read {}", reply.uv() > 0));
    next(&mut reply, &mut |reply| {
        format!("{} {:?}", version(reply), reply.optional())
    });
    next(&mut reply, &mut |reply| version(reply));
    next(&mut reply, &mut |reply| format!("read {}", reply.uv() > 0));
    next(&mut reply, &mut |_| String::new());
    next(&mut reply, &mut |reply| version(reply));
    next(&mut reply, &mut |reply| format!("read {}", reply.uv() > 0));
    next(&mut reply, &mut |reply| {
        let zero = version(reply);
        format!("{zero} set")
    });
    next(&mut reply, &mut |reply| version(reply));
    next(&mut reply, &mut |reply| format!("{} {}", version(reply), reply.u8()));
    next(&mut reply, &mut |reply| version(reply));
    assert!(reply.is_at_end());
    all
}

#[test]
fn a_repeated_message_is_executed_once_after_any_crash() {
    let prepare = |storage: &SimStorage| {
        let mut session = open(storage);
        let client = session.attach("one", false, None).expect("readable");
        ask(
            &mut session,
            client,
            1,
            &[name_it(), set("old", "1"), set("older", "1")],
        );
        session
    };
    let whole = SimStorage::new();
    let mut session = prepare(&whole);
    let before = whole.counters().operations;
    let expected = outcomes(ask(&mut session, 1, 2, &work()));
    let operations = whole.counters().operations;
    assert!(operations > before + 6, "the message is made durable in several steps");
    let mut partly = 0;
    for cut in before..=operations {
        let storage = SimStorage::new();
        let mut session = prepare(&storage);
        storage.cut_at(cut);
        // The reply is lost.
        ask(&mut session, 1, 2, &work());
        let state = session.take_state(false);
        drop((session, state));
        // A crash of the process, and a power failure.
        for policy in [CrashPolicy::Everything, CrashPolicy::Nothing] {
            let storage = SimStorage::from_files(storage.crash(policy, cut));
            let mut session = open(&storage);
            let version = session.version();
            let client = session.attach("one", false, None).expect("readable");
            let again = outcomes(ask(&mut session, client, 2, &work()));
            partly += u64::from(version > 2 && version < 8);
            assert_eq!(again, expected, "cut {cut} {policy:?}, version {version}");
            // Each commit was made once.
            let mut reply = ask(
                &mut session,
                client,
                3,
                &[count(), get(0, "old"), get(0, "b"), get(0, "t")],
            );
            assert_eq!((reply.status(), reply.uv()), (Ok(()), 7));
            assert_eq!((reply.status(), reply.optional()), (Ok(()), None));
            assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"first".to_vec())));
            assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"2".to_vec())));
        }
    }
    assert!(partly > 2, "some crashes are between the commits of the message");
}

#[test]
fn a_batch_in_a_separate_transaction_is_executed_once_too() {
    let storage = SimStorage::new();
    let mut session = open(&storage);
    let client = session.attach("one", false, None).expect("readable");
    let requests = [
        name_it(),
        use_index(true),
        declare(),
        put(&[("a", "1"), ("b", "2")]),
        put(&[("c", "3"), ("d", "1")]),
        set("plain", "1"),
    ];
    let mut replies = || {
        let mut reply = ask(&mut session, client, 1, &requests);
        assert_eq!((reply.status(), reply.status()), (Ok(()), Ok(())));
        assert_eq!((reply.status(), reply.uv() > 0, reply.uv()), (Ok(()), true, 0));
        let batch = (reply.status(), reply.uv(), reply.uv());
        (batch, reply.status(), reply.status())
    };
    let refused = |code: &str| Err(code.to_owned());
    let expected = ((Ok(()), 2, 0), refused("KV_UNIQUE"), refused("KV_INDEX_MISMATCH"));
    assert_eq!(replies(), expected);
    assert_eq!(replies(), expected);
}

#[test]
fn failed_writes_are_not_remembered_and_the_next_message_is_new() {
    let storage = SimStorage::new();
    let mut session = open(&storage);
    let client = session.attach("one", false, None).expect("readable");
    let long = "k".repeat(100_000);
    let mut reply = ask(&mut session, client, 1, &[name_it(), set(&long, "1"), set("a", "1")]);
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Err("KV_KEY_TOO_LARGE".to_owned()));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 1));
    for (seq, version) in [(2, 2), (2, 2), (3, 3)] {
        let mut reply = ask(&mut session, client, seq, &[set("a", "2")]);
        assert_eq!((reply.status(), reply.uv()), (Ok(()), version));
    }
    assert_eq!(session.remembered().expect("readable"), [b"one".to_vec()]);
    session.forget("one");
    let other = session.attach("two", false, None).expect("readable");
    ask(&mut session, other, 1, &[name_it(), set("b", "1")]);
    assert_eq!(session.remembered().expect("readable"), [b"two".to_vec()]);
}

#[test]
fn clients_do_not_see_what_others_have_open_but_what_they_commit() {
    let mut session = open(&SimStorage::new());
    let one = session.attach("one", false, None).expect("readable");
    let two = session.attach("two", true, None).expect("readable");
    ask(&mut session, one, 1, &[name_it(), snapshot(5), set("a", "1")]);
    let mut reply = ask(
        &mut session,
        two,
        1,
        &[name_it(), get(5, "a"), get(0, "a"), set("b", "1")],
    );
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
    assert_eq!(reply.status(), Err("KV_READ_ONLY".to_owned()));
    for request in [
        Request::new(op("TransactionOpen")).uv(9).u8(0),
        Request::new(op("Purge")).uv(1),
        Request::new(op("Compact")).uv(1).uv(1),
    ] {
        assert_eq!(
            ask(&mut session, two, 2, &[request]).status(),
            Err("KV_READ_ONLY".to_owned())
        );
    }
    // One client closes, the other continues.
    assert_eq!(ask(&mut session, two, 3, &[Request::new(op("Close"))]).status(), Ok(()));
    assert_eq!(
        ask(&mut session, two, 4, &[get(0, "a")]).status(),
        Err("KV_CLOSED".to_owned())
    );
    session.detach(two);
    assert_eq!(
        ask(&mut session, two, 5, &[get(0, "a")]).status(),
        Err("KV_CLOSED".to_owned())
    );
    let mut reply = ask(&mut session, one, 2, &[get(5, "a"), get(0, "a")]);
    assert_eq!((reply.status(), reply.optional()), (Ok(()), None));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
}

#[test]
fn a_collection_that_another_client_made_keeps_its_codecs() {
    let mut session = open(&SimStorage::new());
    let one = session.attach("one", false, None).expect("readable");
    let two = session.attach("two", false, None).expect("readable");
    // Both have seen that the collection does not exist yet.
    ask(&mut session, one, 1, &[name_it(), get(0, "a")]);
    let other = Request::new(op("Use")).uv(0).str("").str("bytes").str("json");
    ask(&mut session, two, 1, &[other, get(0, "a")]);
    let mut reply = ask(&mut session, one, 2, &[set("a", "1")]);
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(
        ask(&mut session, two, 2, &[set("a", "2")]).status(),
        Err("KV_CODEC_MISMATCH".to_owned())
    );
}

#[test]
fn open_handles_continue_in_the_next_session_if_nothing_was_committed() {
    for is_changed in [false, true] {
        let storage = SimStorage::new();
        let mut session = open(&storage);
        let one = session.attach("one", false, None).expect("readable");
        ask(&mut session, one, 1, &[name_it()]);
        fill(&mut session, one, 2, 20);
        let mut reply = ask(
            &mut session,
            one,
            3,
            &[
                snapshot(5),
                scan_open(6, 5, 3),
                scan_open(7, 0, 4),
                Request::new(op("TransactionOpen")).uv(8).u8(0),
                get(8, "001"),
            ],
        );
        assert_eq!((reply.status(), reply.uv()), (Ok(()), 20));
        assert_eq!(
            keys(&mut reply),
            (false, vec!["000".into(), "001".into(), "002".into()])
        );
        let state = session.take_state(false).expect("much was opened");
        assert_eq!(session.take_state(false), None, "nothing has changed since");
        if is_changed {
            ask(&mut session, one, 4, &[set("new", "1")]);
        }
        drop(session);
        let mut session = open(&storage);
        let one = session.attach("one", false, Some(&state)).expect("it is its own");
        let mut reply = ask(
            &mut session,
            one,
            5,
            &[
                get(5, "001"),
                scan_next(6, 2),
                scan_next(7, 100),
                get(8, "001"),
                get(9, "001"),
            ],
        );
        if is_changed {
            for code in [
                "KV_SNAPSHOT_LOST",
                "KV_SNAPSHOT_LOST",
                "KV_SNAPSHOT_LOST",
                "KV_CONFLICT",
                "KV_CLOSED",
            ] {
                assert_eq!(reply.status(), Err(code.to_owned()));
            }
            continue;
        }
        assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
        assert_eq!(keys(&mut reply), (false, vec!["003".into(), "004".into()]));
        let (is_done, rest) = keys(&mut reply);
        assert!(is_done);
        assert_eq!(rest.len(), 16);
        assert_eq!(rest[0], "004");
        assert_eq!(
            reply.status(),
            Err("KV_CONFLICT".to_owned()),
            "what it read could have changed unseen"
        );
        assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
        // After `end_inheritance` the snapshot is lost, even though nothing was committed.
        let state = session.take_state(true).expect("it is asked for the last time");
        drop(session);
        let mut session = open(&storage);
        session.end_inheritance();
        let one = session.attach("one", false, Some(&state)).expect("it is its own");
        assert_eq!(
            ask(&mut session, one, 6, &[get(5, "001")]).status(),
            Err("KV_SNAPSHOT_LOST".to_owned())
        );
    }
}

#[test]
fn a_scan_with_versions_and_expiries_continues_with_them() {
    let storage = SimStorage::new();
    let mut session = open(&storage);
    let one = session.attach("one", false, None).expect("readable");
    ask(&mut session, one, 1, &[name_it()]);
    fill(&mut session, one, 2, 5);
    let open_it = Request::new(op("ScanOpen")).uv(6).uv(0).uv(0).u8(0);
    let open_it = open_it.u8(KEYS | META).uv(0).uv(0).uv(2).uv(0);
    let entries = |reply: &mut Reply| {
        reply.status().expect("it is open");
        let (_, count, _) = (reply.u8(), reply.uv(), reply.uv());
        (0..count)
            .map(|_| (reply.bytes(), reply.uv(), reply.uv()))
            .collect::<Vec<_>>()
    };
    let mut reply = ask(&mut session, one, 3, &[open_it]);
    let first = entries(&mut reply);
    let state = session.take_state(true).expect("it is open");
    drop(session);
    let mut session = open(&storage);
    let one = session.attach("one", false, Some(&state)).expect("it is its own");
    let rest = entries(&mut ask(&mut session, one, 4, &[scan_next(6, 10)]));
    let versions: Vec<u64> = first.iter().chain(&rest).map(|(_, version, _)| *version).collect();
    assert_eq!(versions.len(), 5);
    assert!(versions.is_sorted_by(|a, b| a < b) && versions[0] > 0);
    assert!(rest.iter().all(|(_, _, expires)| *expires == 0));
}

/// Opens a scan of the index of the first collection: index keys and keys, and the values.
fn index_scan_open(id: u64, view: u64, flags: u8, items: u64) -> Request {
    Request::new(op("IndexScan"))
        .uv(id)
        .uv(view)
        .uv(0)
        .uv(0)
        .u8(0)
        .u8(flags)
        .uv(0)
        .uv(0)
        .uv(items)
        .uv(0)
}

/// Reads a chunk of an index; returns whether it is the last, and each item as "index key=key:value".
fn index_items(reply: &mut Reply) -> (bool, Vec<String>) {
    assert_eq!(reply.status(), Ok(()));
    let (is_done, count, _) = (reply.u8() == 1, reply.uv(), reply.uv());
    let item = |_| format!("{}={}:{}", reply.str(), reply.str(), reply.str());
    (is_done, (0..count).map(item).collect())
}

#[test]
fn a_scan_of_an_index_goes_on_in_the_next_session_if_nothing_was_committed() {
    let all = ["1=d:1", "2=a:2", "2=c:2", "2=e:2", "3=b:3"];
    for is_changed in [false, true] {
        let storage = SimStorage::new();
        let mut session = open(&storage);
        let one = session.attach("one", false, None).expect("readable");
        let records = [("a", "2"), ("b", "3"), ("c", "2"), ("d", "1"), ("e", "2")];
        ask(
            &mut session,
            one,
            1,
            &[name_it(), use_index(false), declare(), put(&records)],
        );
        let mut reply = ask(
            &mut session,
            one,
            2,
            &[
                snapshot(5),
                // They stop among entries with the same index key.
                index_scan_open(6, 5, VALUES, 2),
                index_scan_open(7, 0, VALUES | REVERSE, 3),
                // This one is at its end, but can be moved back.
                index_scan_open(8, 0, VALUES | KEEP, 10),
            ],
        );
        assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
        assert_eq!(
            index_items(&mut reply),
            (false, all[..2].iter().copied().map(String::from).collect())
        );
        assert_eq!(index_items(&mut reply).1, ["3=b:3", "2=e:2", "2=c:2"]);
        assert_eq!(index_items(&mut reply), (true, all.map(String::from).to_vec()));
        let state = session.take_state(false).expect("much was opened");
        if is_changed {
            ask(&mut session, one, 3, &[put(&[("f", "2")])]);
        }
        drop(session);
        let mut session = open(&storage);
        let one = session.attach("one", false, Some(&state)).expect("it is its own");
        let seek = Request::new(op("ScanSeek")).uv(8).str("3").uv(0);
        let requests = [scan_next(6, 1), scan_next(6, 9), scan_next(7, 9), seek, scan_next(8, 9)];
        let mut reply = ask(&mut session, one, 4, &requests);
        if is_changed {
            for _ in requests {
                assert_eq!(reply.status(), Err("KV_SNAPSHOT_LOST".to_owned()));
            }
            continue;
        }
        assert_eq!(index_items(&mut reply), (false, vec!["2=c:2".to_owned()]));
        assert_eq!(index_items(&mut reply).1, ["2=e:2", "3=b:3"]);
        assert_eq!(index_items(&mut reply).1, ["2=a:2", "1=d:1"]);
        assert_eq!(reply.status(), Ok(()));
        assert_eq!(index_items(&mut reply).1, ["3=b:3"]);
        assert!(reply.is_at_end());
    }
}

#[test]
fn a_scan_of_an_index_is_lost_where_its_code_could_not_be_loaded() {
    let storage = SimStorage::new();
    let mut session = open(&storage);
    let one = session.attach("one", false, None).expect("readable");
    let requests = [name_it(), use_index(false), declare(), put(&[("a", "1"), ("b", "1")])];
    ask(&mut session, one, 1, &requests);
    ask(&mut session, one, 2, &[snapshot(5), index_scan_open(6, 5, KEYS, 1)]);
    let state = session.take_state(true).expect("it is open");
    drop(session);
    let mut session = open(&storage);
    assert!(session.lacks_lazy(), "the database has indexes");
    session.end_loading(Some("offline".to_owned()));
    let one = session.attach("one", false, Some(&state)).expect("it is its own");
    let mut reply = ask(&mut session, one, 3, &[scan_next(6, 1), get(5, "a")]);
    assert_eq!(reply.status(), Err("KV_SNAPSHOT_LOST".to_owned()));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
}

#[test]
fn followers_get_every_commit_once_across_a_planned_change() {
    let follow = |id: u64| Request::new(op("ChangesOpen")).uv(id).uv(0).u8(1).uv(0).u8(0);
    let next = |id: u64| Request::new(op("ChangesNext")).uv(id).uv(1000);
    let storage = SimStorage::new();
    let mut session = open(&storage);
    let one = session.attach("one", false, None).expect("readable");
    let two = session.attach("two", false, None).expect("readable");
    ask(&mut session, one, 1, &[name_it(), set("a", "1"), follow(3), follow(4)]);
    ask(&mut session, two, 1, &[name_it()]);
    let pulled = |reply: &mut Reply| {
        assert_eq!(reply.status(), Ok(()));
        let (is_all, version) = (reply.u8(), reply.uv());
        (is_all, version, reply.bytes())
    };
    assert_eq!(pulled(&mut ask(&mut session, one, 2, &[next(3)])), (1, 1, Vec::new()));
    assert_eq!(session.next_to_wake(), None);
    ask(&mut session, two, 2, &[set("b", "1"), set("c", "1")]);
    assert_eq!(session.next_to_wake(), Some(one));
    assert_eq!(session.next_to_wake(), None);
    // Only one of the two followers reads them before the handover.
    let (_, version, taken) = pulled(&mut ask(&mut session, one, 3, &[next(4)]));
    assert_eq!(version, 3);
    session.select(one);
    let state = session.take_state(true).expect("it is asked for the last time");
    drop(session);
    let mut session = open(&storage);
    let one = session.attach("one", false, Some(&state)).expect("it is its own");
    assert_eq!(session.next_to_wake(), Some(one));
    let mut reply = ask(&mut session, one, 4, &[next(3), next(3), next(4)]);
    let (_, version, bytes) = pulled(&mut reply);
    assert_eq!((version, &bytes), (3, &taken));
    assert_eq!(pulled(&mut reply), (1, 3, Vec::new()));
    assert_eq!(pulled(&mut reply), (1, 3, Vec::new()));
    ask(&mut session, one, 5, &[set("d", "1")]);
    let mut reply = ask(&mut session, one, 6, &[next(3), next(4)]);
    let (first, second) = (pulled(&mut reply), pulled(&mut reply));
    assert_eq!((first.1, first.2.is_empty()), (4, false));
    assert_eq!(first, second);
}

/// What is handed over is bounded, whatever the number of followers: those for which there is no
/// room learn that they miss commits.
#[test]
fn many_followers_are_handed_over_with_a_bounded_number_of_bytes() {
    const FOLLOWERS: u64 = 60;
    let follow = |id: u64| Request::new(op("ChangesOpen")).uv(id).uv(0).u8(1).uv(0).u8(0);
    let next = |id: u64| Request::new(op("ChangesNext")).uv(id).uv(1000);
    let storage = SimStorage::new();
    let mut session = open(&storage);
    let one = session.attach("one", false, None).expect("readable");
    ask(&mut session, one, 1, &[name_it(), set("a", "1")]);
    for id in 1..=FOLLOWERS {
        assert_eq!(ask(&mut session, one, 1 + id, &[follow(id), next(id)]).status(), Ok(()));
    }
    ask(&mut session, one, 100, &[set("b", &"x".repeat(1 << 20))]);
    let state = session.take_state(true).expect("it is asked for the last time");
    assert!(state.len() < 34 << 20, "{}", state.len());
    drop(session);
    let mut session = open(&storage);
    let one = session.attach("one", false, Some(&state)).expect("it is its own");
    let mut outcomes = Vec::new();
    for id in 1..=FOLLOWERS {
        let mut reply = ask(&mut session, one, 100 + id, &[next(id)]);
        outcomes.push(reply.status().map(|()| {
            reply.u8();
            reply.uv();
            reply.bytes().len() >> 20
        }));
    }
    let read = outcomes.iter().take_while(|outcome| **outcome == Ok(1)).count();
    assert!((31..=33).contains(&read), "{read}");
    for outcome in &outcomes[read..] {
        assert_eq!(*outcome, Err("KV_TRUNCATED_FEED".to_owned()));
    }
}

#[test]
fn a_client_with_unknown_state_gets_an_error() {
    let mut session = open(&SimStorage::new());
    let one = session.attach("one", false, Some(&[])).expect("that is a state");
    let next = Request::new(op("ChangesNext")).uv(3).uv(1000);
    let commit = Request::new(op("TransactionCommit")).uv(8).u8(0);
    let mut reply = ask(
        &mut session,
        one,
        1,
        &[name_it(), get(5, "a"), scan_next(6, 1), commit, next],
    );
    assert_eq!(reply.status(), Ok(()));
    for code in [
        "KV_SNAPSHOT_LOST",
        "KV_SNAPSHOT_LOST",
        "KV_CONFLICT",
        "KV_TRUNCATED_FEED",
    ] {
        assert_eq!(reply.status(), Err(code.to_owned()));
    }
}

#[test]
fn no_bytes_are_a_state_that_ends_the_session() {
    let storage = SimStorage::new();
    let mut session = open(&storage);
    let one = session.attach("one", false, None).expect("readable");
    ask(&mut session, one, 1, &[name_it()]);
    fill(&mut session, one, 2, 5);
    ask(
        &mut session,
        one,
        3,
        &[
            snapshot(5),
            scan_open(6, 5, 3),
            Request::new(op("ChangesOpen")).uv(3).uv(0).u8(0),
        ],
    );
    let state = session.take_state(false).expect("much was opened");
    for cut in 1..state.len() {
        let _ = session.attach("cut", false, Some(&state[..cut]));
        let mut damaged = state.clone();
        damaged[cut] ^= 0xff;
        let _ = session.attach("damaged", false, Some(&damaged));
    }
    let mut reply = ask(&mut session, one, 4, &[get(5, "001")]);
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
}

/// What is left of a message that was cut gets another number, under which nobody knows what was
/// committed of it before.
#[test]
fn a_repeated_message_is_not_cut_before_what_was_committed() {
    let storage = SimStorage::new();
    let mut session = open(&storage);
    let first = session.attach("a", false, None).expect("there is room");
    ask(&mut session, first, 1, &[name_it(), set("value", "short")]);
    let state = session.take_state(false).expect("a collection was named");
    let requests = [get(0, "value"), set("b", "1"), get(0, "value")];
    // Its reply is lost.
    ask(&mut session, first, 2, &requests);
    drop(session);

    let mut session = open(&storage);
    let other = session.attach("other", false, None).expect("there is room");
    ask(
        &mut session,
        other,
        1,
        &[name_it(), set("value", &"x".repeat(REPLY_BYTES))],
    );
    session.attach("a", false, Some(&state)).expect("there is room");
    session.begin_message(2);
    let mut out = Writer::default();
    let progress = session.execute_message(&message(&requests), &mut out);
    let at = message(&requests[..2]).len();
    assert_eq!(progress, Progress::Cut { at, replies: 2 });
    let mut reply = Reply::new(&out);
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.optional().map(|value| value.len()), Some(REPLY_BYTES));
    assert_eq!(
        (reply.status(), reply.uv()),
        (Ok(()), 2),
        "the version of its first execution"
    );
    assert!(reply.is_at_end());
}
