//! Followers within a session.

use super::common::{FaultyStorage, Request, execute, op, open, set};
use super::use_default;
use mangrove_bindings::session::Session;

/// Follows all commits, or a range of the first collection from `lower` on.
fn follow(id: u64, since: u64, lower: Option<&str>) -> Request {
    let request = Request::new(op("ChangesOpen")).uv(id).uv(since);
    match lower {
        None => request.u8(0),
        Some(lower) => request.u8(1).uv(0).u8(1).str(lower),
    }
}

fn next_changes(id: u64) -> Request {
    Request::new(op("ChangesNext")).uv(id).uv(0)
}

/// Returns the followers that may have something to read.
fn ready(session: &mut Session) -> Vec<u64> {
    let mut reply = execute(session, &[Request::new(op("ChangesReady"))]);
    assert_eq!(reply.status(), Ok(()));
    (0..reply.uv()).map(|_| reply.uv()).collect()
}

#[test]
fn commits_wake_only_interested_followers() {
    let mut session = open(FaultyStorage::new());
    execute(&mut session, &[use_default(), set("a", "1")]);
    let range = |id, from: &str, to: &str| {
        let request = Request::new(op("ChangesOpen")).uv(id).uv(0).u8(1).uv(0);
        // Lower bound inclusive, upper bound exclusive.
        request.u8(1 | 4 | 8).str(from).str(to)
    };
    let opened: Vec<Request> = (0..8)
        .map(|id| range(id, &id.to_string(), &(id + 1).to_string()))
        .collect();
    execute(&mut session, &opened);
    execute(&mut session, &[range(8, "2", "6"), follow(9, 0, None)]);
    let drain = |session: &mut Session| {
        let all: Vec<Request> = (0..10).map(next_changes).collect();
        // Each request returns one commit.
        while !ready(session).is_empty() {
            execute(session, &all);
        }
        let _ = session.next_to_wake();
    };
    drain(&mut session);
    execute(&mut session, &[Request::new(op("ChangesClose")).uv(9)]);

    execute(&mut session, &[set("9", ""), set("a", "2")]);
    assert!(session.next_to_wake().is_none(), "these have no follower");
    assert_eq!(ready(&mut session), []);
    execute(&mut session, &[set("3x", "1"), set("9", "2"), set("7", "3")]);
    assert!(session.next_to_wake().is_some() && session.next_to_wake().is_none());
    assert_eq!(ready(&mut session), [3, 7, 8]);
    // Only followers that have not been told yet count.
    execute(&mut session, &[set("3x", "2")]);
    assert!(session.next_to_wake().is_none());
    execute(&mut session, &[set("5", "1")]);
    assert!(session.next_to_wake().is_some());
    assert_eq!(ready(&mut session), [3, 5, 7, 8]);
    let mut reply = execute(&mut session, &[next_changes(3), next_changes(3), next_changes(3)]);
    let mut versions = Vec::new();
    for is_last in [0, 0, 1] {
        assert_eq!((reply.status(), reply.u8()), (Ok(()), is_last));
        versions.push(reply.uv());
        assert_eq!(reply.bytes().is_empty(), is_last == 1);
    }
    assert_eq!(versions, [4, 7, 8]);
    drain(&mut session);

    let clear = Request::new(op("Clear")).u8(0).uv(0).u8(1 | 2 | 4).str("4").str("6");
    execute(&mut session, &[clear]);
    assert!(session.next_to_wake().is_some());
    assert_eq!(ready(&mut session), [4, 5, 6, 8]);
    drain(&mut session);
    execute(&mut session, &[Request::new(op("Drop")).u8(0).str("")]);
    assert_eq!(ready(&mut session), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn followers_are_notified_once_and_get_their_commits() {
    let mut session = open(FaultyStorage::new());
    assert!(session.next_to_wake().is_none());
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            set("a", "1"),
            follow(1, 0, None),
            follow(2, 0, Some("b")),
        ],
    );
    assert_eq!((reply.status(), reply.status(), reply.uv()), (Ok(()), Ok(()), 1));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 1));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 1));
    // A follower that has not read to the end is not woken.
    execute(&mut session, &[set("0", "0")]);
    assert!(session.next_to_wake().is_none());
    execute(&mut session, &[next_changes(1), next_changes(1), next_changes(2)]);
    execute(&mut session, &[set("a", "2"), set("b", "3")]);
    assert!(session.next_to_wake().is_some() && session.next_to_wake().is_none());
    assert_eq!(ready(&mut session), [1, 2]);

    let mut reply = execute(&mut session, &[next_changes(1), next_changes(2), next_changes(2)]);
    assert_eq!((reply.status(), reply.u8(), reply.uv()), (Ok(()), 0, 3));
    assert_eq!(
        reply.bytes(),
        [b"\x03\x01\x01\x00\x00\x01a\x012\x00".as_slice()].concat()
    );
    assert_eq!((reply.status(), reply.u8(), reply.uv()), (Ok(()), 0, 4));
    assert_eq!(reply.bytes(), b"\x04\x01\x01\x00\x00\x01b\x013\x00");
    assert_eq!((reply.status(), reply.u8(), reply.uv()), (Ok(()), 1, 4));
    assert_eq!(reply.bytes(), b"");

    let close = |id| Request::new(op("ChangesClose")).uv(id);
    let mut reply = execute(
        &mut session,
        &[close(1), close(2), close(3), next_changes(1), set("c", "4")],
    );
    for _ in 0..3 {
        assert_eq!(reply.status(), Ok(()));
    }
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
    assert!(session.next_to_wake().is_none());
}

#[test]
fn changes_that_are_gone_cannot_be_followed() {
    let mut session = open(FaultyStorage::new());
    let mut reply = execute(
        &mut session,
        &[use_default(), set("a", "1"), set("b", "2"), follow(1, 2, None)],
    );
    assert_eq!((reply.status(), reply.status(), reply.uv()), (Ok(()), Ok(()), 1));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
    assert_eq!(reply.status(), Err("KV_TRUNCATED_FEED".to_owned()));
}

#[test]
fn commits_that_are_undone_are_not_followed() {
    let storage = FaultyStorage::new();
    let mut session = open(storage.clone());
    execute(
        &mut session,
        &[use_default(), set("a", "1"), follow(1, 0, None), next_changes(1)],
    );
    storage.fail_writes(true);
    let mut reply = execute(&mut session, &[set("a", "2"), next_changes(1)]);
    assert!(reply.status().is_err());
    assert_eq!(
        (reply.status(), reply.u8(), reply.uv(), reply.bytes()),
        (Ok(()), 1, 1, Vec::new())
    );
    assert!(session.next_to_wake().is_none());
}
