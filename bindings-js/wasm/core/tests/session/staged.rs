//! Values in parts: ranges of values, and values written by several requests.

use super::common::{FaultyStorage, Reply, Request, execute, keys, op, open, set};
use super::{KEYS, begin, commit, get, scan_open, use_default, within};

fn part_op(name: &str) -> Request {
    let found = mangrove_bindings::request::LazyRequest::CODES
        .iter()
        .find(|(found, _)| *found == name);
    Request::new(found.expect("a request's name").1)
}

fn get_range(view: u64, key: &str, start: u64, end: u64) -> Request {
    part_op("Read").uv(view).uv(0).str(key).uv(start).uv(end).into_part()
}

fn stage(id: u64, offset: usize, bytes: &str) -> Request {
    part_op("Append").uv(id).uv(0).uv(offset as u64).str(bytes).into_part()
}

fn set_staged(id: u64, key: &str) -> Request {
    part_op("Store").uv(id).uv(0).str(key).uv(0).into_part()
}

fn close(id: u64) -> Request {
    part_op("Discard").uv(id).into_part()
}

/// Reads the reply of a range: the length of the value, its version and the part.
fn part(reply: &mut Reply) -> Option<(u64, u64, String)> {
    assert_eq!(reply.status(), Ok(()));
    (reply.u8() == 1).then(|| (reply.uv(), reply.uv(), reply.str()))
}

#[test]
fn ranges_are_read_in_every_view() {
    let mut session = open(FaultyStorage::new());
    let snapshot = Request::new(op("SnapshotOpen")).uv(1);
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            set("a", "0123456789"),
            get_range(0, "a", 2, 5),
            get_range(0, "a", 8, u64::MAX),
            get_range(0, "a", 5, 2),
            get_range(0, "b", 0, 9),
            snapshot,
            begin(2),
            within(2, set("a", "abc")),
            set("a", "later"),
            get_range(1, "a", 0, 2),
            get_range(2, "a", 1, 9),
            get_range(0, "a", 1, 3),
            get_range(9, "a", 0, 1),
        ],
    );
    assert_eq!(reply.status(), Ok(()));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 1));
    assert_eq!(part(&mut reply), Some((10, 1, "234".into())));
    assert_eq!(part(&mut reply), Some((10, 1, "89".into())));
    assert_eq!(part(&mut reply), Some((10, 1, String::new())));
    assert_eq!(part(&mut reply), None);
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 1));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 1));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 0));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
    assert_eq!(part(&mut reply), Some((10, 1, "01".into())));
    assert_eq!(part(&mut reply), Some((3, 0, "bc".into())));
    assert_eq!(part(&mut reply), Some((5, 2, "at".into())));
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
    assert!(reply.is_at_end());
}

#[test]
fn parts_become_a_value_in_one_commit() {
    let mut session = open(FaultyStorage::new());
    let long = "x".repeat(700_000);
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            stage(7, 0, "head "),
            stage(8, 0, "other"),
            stage(7, 5, &long),
            // Its reply was lost.
            stage(7, 5, &long),
            stage(7, 5 + long.len(), &long),
            set("b", "2"),
            get("a"),
            set_staged(7, "a"),
            set("c", "3"),
            get_range(0, "a", 0, 6),
            get_range(0, "a", 1_400_004, 9_999_999),
            close(8),
        ],
    );
    for _ in 0..6 {
        assert_eq!(reply.status(), Ok(()));
    }
    // The collection was created for the first part.
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
    assert_eq!((reply.status(), reply.u8()), (Ok(()), 0));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 3));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 4));
    assert_eq!(part(&mut reply), Some((1_400_005, 3, "head x".into())));
    assert_eq!(part(&mut reply), Some((1_400_005, 3, "x".into())));
    assert_eq!(reply.status(), Ok(()));
    assert!(reply.is_at_end());
    let mut reply = execute(
        &mut session,
        &[set_staged(7, "a"), stage(8, 5, "x"), set_staged(8, "a")],
    );
    for _ in 0..3 {
        assert_eq!(reply.status(), Err("KV_SNAPSHOT_LOST".to_owned()));
    }
    let mut reply = execute(
        &mut session,
        &[
            stage(9, 0, "ab"),
            stage(9, 1, "cd"),
            stage(9, 3, "e"),
            set_staged(9, "d"),
        ],
    );
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Err("KV_INVALID_ARGUMENT".to_owned()));
    assert_eq!(reply.status(), Err("KV_INVALID_ARGUMENT".to_owned()));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 5));
    let mut reply = execute(&mut session, &[scan_open(1, KEYS, 0, 0, 9)]);
    assert_eq!(keys(&mut reply).1, ["a", "b", "c", "d"]);
}

#[test]
fn a_client_writes_a_limited_number_of_values_at_once() {
    let mut session = open(FaultyStorage::new());
    let mut requests = vec![use_default()];
    requests.extend((1..=65).map(|id| stage(id, 0, "x")));
    requests.extend([close(1), stage(65, 0, "x"), set_staged(65, "a")]);
    let mut reply = execute(&mut session, &requests);
    for _ in 0..65 {
        assert_eq!(reply.status(), Ok(()));
    }
    assert_eq!(reply.status(), Err("KV_TOO_MANY_OPEN".to_owned()));
    for _ in 0..3 {
        assert_eq!(reply.status(), Ok(()));
    }
}

/// A refused part ends the value; a commit that fails is reported as the failure of `SetStaged`.
#[test]
fn full_storage_fails_the_part_or_the_commit() {
    let storage = FaultyStorage::new();
    let mut session = open(storage.clone());
    let long = "x".repeat(1_200_000);
    let mut reply = execute(
        &mut session,
        &[use_default(), set("a", "1"), stage(1, 0, "x"), stage(2, 0, &long)],
    );
    for is_set in [false, true, false, false] {
        assert_eq!(reply.status(), Ok(()));
        if is_set {
            reply.uv();
        }
    }
    storage.fail_writes(true);
    let mut reply = execute(
        &mut session,
        &[
            stage(1, 1, &long),
            set_staged(1, "b"),
            set_staged(2, "c"),
            get("b"),
            get("c"),
        ],
    );
    assert_eq!(reply.status(), Err("KV_QUOTA_EXCEEDED".to_owned()));
    assert_eq!(reply.status(), Err("KV_SNAPSHOT_LOST".to_owned()));
    assert_eq!(reply.status(), Err("KV_QUOTA_EXCEEDED".to_owned()));
    for _ in 0..2 {
        assert_eq!((reply.status(), reply.u8()), (Ok(()), 0));
    }
    storage.fail_writes(false);
    let mut reply = execute(
        &mut session,
        &[stage(3, 0, &long), set_staged(3, "c"), get_range(0, "c", 0, 2)],
    );
    assert_eq!(reply.status(), Ok(()));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
    assert_eq!(part(&mut reply), Some((1_200_000, 2, "xx".into())));
}

#[test]
fn a_dropped_collection_loses_the_value_and_a_closed_session_gives_it_up() {
    let mut session = open(FaultyStorage::new());
    let long = "x".repeat(1_200_000);
    let drop = Request::new(op("Drop")).u8(0).str("");
    let verify = Request::new(op("Verify")).uv(1).uv(1 << 30);
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            stage(1, 0, &long),
            verify.clone(),
            drop,
            set_staged(1, "a"),
            commit(9),
        ],
    );
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.u8(), 1);
    reply.uv();
    reply.uv();
    assert!(reply.str().contains("\"problems\":[]"));
    assert_eq!((reply.status(), reply.uv(), reply.u8()), (Ok(()), 2, 1));
    assert_eq!(reply.status(), Err("KV_SNAPSHOT_LOST".to_owned()));
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
    let mut reply = execute(
        &mut session,
        &[stage(2, 0, &long), Request::new(op("Close")), stage(2, 9, "x")],
    );
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
}
