//! Runs the tests of `session.rs` with a host that performs the flushes, and tests what a failed
//! flush does to a message.

#[path = "session.rs"]
mod same;

use mangrove_bindings::protocol::Writer;
use mangrove_bindings::session::Progress;
use mangrove_engine::Error;
use same::common::{FaultyStorage, Reply, Request, execute, message, op, open, set};

fn get(key: &str) -> Request {
    Request::new(op("Get")).uv(0).uv(0).str(key)
}

fn prepared() -> mangrove_bindings::session::Session {
    let mut session = open(FaultyStorage::new());
    let name_it = Request::new(op("Use")).uv(0).str("").str("any").str("json");
    execute(&mut session, &[name_it, set("a", "0")]);
    session
}

fn failure() -> Error {
    Error::io("flush log", "the disk is gone")
}

#[test]
fn a_message_waits_at_each_read_that_needs_its_writes() {
    let mut session = prepared();
    let count = || Request::new(op("Count")).uv(0).uv(0).u8(0);
    let sent = message(&[set("b", "1"), count(), set("c", "2"), count(), get("c")]);
    let mut out = Writer::default();
    let mut progress = session.start(&sent, &mut out);
    let mut waits = 0;
    while progress == Progress::AwaitsFlush {
        waits += 1;
        assert!(session.begin_flush().is_some());
        session.end_flush(Ok(())).expect("the flush succeeded");
        progress = session.resume(&sent, &mut out);
    }
    assert_eq!(waits, 2);
    let mut reply = Reply::new(&out);
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 3));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 3));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"2".to_vec())));
    assert!(reply.is_at_end());
}

#[test]
fn a_failed_flush_of_the_host_undoes_the_writes_that_waited_and_no_read_shows_them() {
    let mut session = prepared();
    let sent = message(&[get("a"), set("a", "1"), get("a"), get("b"), set("b", "1")]);
    let mut out = Writer::default();
    assert_eq!(session.start(&sent, &mut out), Progress::AwaitsFlush);
    assert!(session.begin_flush().is_some());
    assert_eq!(session.end_flush(Err(failure())), Err(failure()));
    assert_eq!(session.resume(&sent, &mut out), Progress::Done);
    let mut reply = Reply::new(&out);
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"0".to_vec())));
    for _ in 0..4 {
        assert_eq!(reply.status(), Err("KV_IO".to_owned()));
    }
    assert!(reply.is_at_end());
    let mut reply = execute(&mut session, &[get("a"), set("a", "2")]);
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"0".to_vec())));
    assert_eq!(reply.status(), Err("KV_IO".to_owned()), "nothing is written any more");
}

#[test]
fn a_failed_flush_that_was_not_waited_for_ends_writing() {
    let mut session = prepared();
    let sent = message(&[set("a", "1")]);
    let mut out = Writer::default();
    assert_eq!(session.start(&sent, &mut out), Progress::AwaitsFlush);
    assert!(session.begin_flush().is_some());
    session.release_flush();
    assert_eq!(session.resume(&sent, &mut out), Progress::Done);
    assert_eq!(Reply::new(&out).status(), Ok(()));
    assert_eq!(session.end_flush(Err(failure())), Err(failure()));
    assert_eq!(
        execute(&mut session, &[set("a", "2")]).status(),
        Err("KV_IO".to_owned())
    );
}

#[test]
fn the_commit_of_a_transaction_waits_and_fails_alike() {
    for fails in [false, true] {
        let mut session = prepared();
        let begin = Request::new(op("TransactionOpen")).uv(1).u8(0);
        let commit = Request::new(op("TransactionCommit")).uv(1).u8(0);
        let sent = message(&[begin, set("a", "1").within(1), commit, get("a")]);
        let mut out = Writer::default();
        assert_eq!(session.start(&sent, &mut out), Progress::AwaitsFlush);
        assert!(session.begin_flush().is_some());
        let ended = session.end_flush(if fails { Err(failure()) } else { Ok(()) });
        assert_eq!(ended.is_err(), fails);
        assert_eq!(session.resume(&sent, &mut out), Progress::Done);
        let mut reply = Reply::new(&out);
        assert_eq!((reply.status(), reply.uv()), (Ok(()), 1));
        assert_eq!((reply.status(), reply.uv()), (Ok(()), 0));
        if fails {
            assert_eq!(reply.status(), Err("KV_IO".to_owned()));
        } else {
            assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
        }
        let stored = if fails { "0" } else { "1" };
        assert_eq!(
            (reply.status(), reply.optional()),
            (Ok(()), Some(stored.as_bytes().to_vec()))
        );
        assert!(reply.is_at_end());
    }
}
