//! Transactions, batches and checks within a session.

use super::common::{FaultyStorage, Request, execute, keys, op, open, set};
use super::{KEEP, KEYS, begin, commit, get, get_in, use_default, within};

#[test]
fn transactions_see_their_writes_alone_until_they_commit_or_conflict() {
    let mut session = open(FaultyStorage::new());
    execute(&mut session, &[use_default(), set("a", "1"), begin(7), begin(8)]);
    let mut reply = execute(
        &mut session,
        &[
            within(7, set("b", "2")),
            within(7, Request::new(op("Delete")).u8(0).uv(0).str("a")),
            get_in(7, "a"),
            get_in(7, "b"),
            get("b"),
            Request::new(op("Count")).uv(7).uv(0).u8(0),
            get_in(8, "a"),
            within(8, set("c", "3")),
            commit(7),
            get("b"),
            commit(8),
            get("c"),
            commit(8),
        ],
    );
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 0));
    assert_eq!((reply.status(), reply.uv(), reply.u8()), (Ok(()), 0, 1));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), None));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"2".to_vec())));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), None));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 1));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 0));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"2".to_vec())));
    assert_eq!(reply.status(), Err("KV_CONFLICT".to_owned()));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), None));
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
}

#[test]
fn a_batch_in_a_transaction_is_all_or_nothing_and_savepoints_bring_back() {
    let mut session = open(FaultyStorage::new());
    let long = "k".repeat(100_000);
    let batch = |second: &str| {
        let request = Request::new(op("Batch")).u8(0).uv(2).u8(0).uv(0).str("a").str("1");
        within(7, request.u8(2).uv(0).str(second).str("2").uv(1 << 50))
    };
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            begin(7),
            batch(&long),
            get_in(7, "a"),
            Request::new(op("Savepoint")).uv(7),
            batch("b"),
            Request::new(op("Entry")).uv(7).uv(0).str("b"),
            Request::new(op("RollbackTo")).uv(7).uv(0),
            get_in(7, "b"),
            Request::new(op("RollbackTo")).uv(7).uv(5),
            Request::new(op("TransactionClose")).uv(7),
            get_in(7, "b"),
        ],
    );
    assert_eq!(reply.status(), Ok(()));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 0));
    assert_eq!(reply.status(), Err("KV_KEY_TOO_LARGE".to_owned()));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), None));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 0));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 0, 0));
    assert_eq!((reply.status(), reply.u8(), reply.str()), (Ok(()), 1, "2".to_owned()));
    assert_eq!((reply.uv(), reply.uv()), (0, 1 << 50));
    assert_eq!(reply.status(), Ok(()));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), None));
    assert_eq!(reply.status(), Err("KV_INVALID_ARGUMENT".to_owned()));
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
}

#[test]
fn checks_compare_versions_before_anything_is_changed() {
    let mut session = open(FaultyStorage::new());
    let batch = |version: u64, key: &str| {
        Request::new(op("Batch"))
            .u8(0)
            .uv(2)
            .u8(0)
            .uv(0)
            .str("n")
            .str("new")
            .u8(3)
            .uv(0)
            .str(key)
            .uv(version)
    };
    let insert = |value: &str| Request::new(op("GetOrInsert")).u8(0).uv(0).str("g").str(value).uv(0);
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            set("a", "1"),
            batch(0, "a"),
            get("n"),
            batch(2, "a"),
            get("n"),
            insert("x"),
            insert("y"),
        ],
    );
    assert_eq!(reply.status(), Ok(()));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 1));
    assert_eq!(reply.status(), Err("KV_CONFLICT".to_owned()));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), None));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 2, 0));
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"new".to_vec())));
    assert_eq!((reply.status(), reply.uv(), reply.optional()), (Ok(()), 3, None));
    assert_eq!(
        (reply.status(), reply.uv(), reply.optional()),
        (Ok(()), 3, Some(b"x".to_vec()))
    );
}

#[test]
fn scans_of_transactions_continue_from_message_to_message() {
    let mut session = open(FaultyStorage::new());
    execute(&mut session, &[use_default(), set("a", "1"), set("c", "3"), begin(7)]);
    let scan = |view: u64| {
        Request::new(op("ScanOpen"))
            .uv(9)
            .uv(view)
            .uv(0)
            .u8(0)
            .u8(KEYS | KEEP)
            .uv(0)
            .uv(0)
            .uv(1)
            .uv(0)
    };
    let next = Request::new(op("ScanNext")).uv(9).uv(5).uv(0);
    let mut reply = execute(
        &mut session,
        &[within(7, set("b", "2")), scan(7), within(7, set("d", "4"))],
    );
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 0));
    assert_eq!(keys(&mut reply), (false, vec!["a".to_owned()]));
    let mut reply = execute(
        &mut session,
        &[
            next.clone(),
            Request::new(op("ScanSeek")).uv(9).str("b").uv(0),
            next.clone(),
        ],
    );
    assert_eq!(keys(&mut reply), (true, vec!["b".to_owned(), "c".to_owned()]));
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(keys(&mut reply), (true, vec!["b".to_owned(), "c".to_owned()]));
    let seek = Request::new(op("ScanSeek")).uv(9).str("a").uv(0);
    let mut reply = execute(&mut session, &[Request::new(op("TransactionClose")).uv(7), seek]);
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
}
