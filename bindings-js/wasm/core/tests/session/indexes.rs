//! Databases with indexes: declared by requests, or by the crate.

use std::sync::Arc;

use mangrove_bindings::session::Session;
use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::{Database, Durability, IndexBy, Options};

use super::common::{Request, declare, execute, op, put, set, use_index};
use super::{begin, commit, get, use_default, within};

/// A database whose default collection has an index of values with one record, "a".
fn indexed(storage: &Arc<dyn Storage>) -> Session {
    let database = Database::open(Arc::clone(storage), Options::default()).expect("it is new");
    let mut transaction = database.begin().expect("it can be written");
    transaction.set_codecs("", "any", "json").expect("it is new");
    transaction.commit(Durability::Strict).expect("memory has room");
    let values = database
        .indexed_collection("", [IndexBy::new("value", |_, value| Some(value.to_vec()))])
        .expect("it is new");
    let mut transaction = database.begin().expect("it can be written");
    values.set(&mut transaction, b"a", b"1", None).expect("it is small");
    transaction.commit(Durability::Strict).expect("memory has room");
    Session::new(database)
}

#[test]
fn writes_that_lack_index_keys_are_refused_and_removals_keep_the_index_right() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut session = indexed(&storage);
    let delete = Request::new(op("Delete")).u8(0).uv(0).str("a");
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            set("b", "2"),
            begin(1),
            within(1, set("b", "2")),
            commit(1),
        ],
    );
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Err("KV_INDEX_MISMATCH".to_owned()));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 3));
    assert_eq!(reply.status(), Err("KV_INDEX_MISMATCH".to_owned()));
    let mut reply = execute(&mut session, &[delete]);
    assert_eq!((reply.status(), reply.uv(), reply.u8()), (Ok(()), 4, 1));
    drop(session);
    let database = Database::open(storage, Options::default()).expect("it is there");
    assert!(
        database
            .snapshot()
            .index("", "value")
            .expect("it is complete")
            .is_empty()
    );
    assert!(database.verify().expect("it can be read").is_ok());
}

#[test]
fn a_core_without_its_rest_writes_to_no_database_with_indexes() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut session = indexed(&storage);
    session.lacks_lazy();
    let delete = || Request::new(op("Delete")).u8(0).uv(0).str("a");
    let refused = || Err("KV_IO".to_owned());
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            delete(),
            get("a"),
            begin(1),
            within(1, delete()),
            commit(1),
        ],
    );
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), refused());
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 3));
    assert_eq!(reply.status(), refused());
    assert_eq!(reply.status(), refused());
    session.end_loading(None);
    let mut reply = execute(&mut session, &[delete()]);
    assert_eq!((reply.status(), reply.uv(), reply.u8()), (Ok(()), 4, 1));
}

/// The index keys and keys of all entries, as "index key=key".
fn entries(session: &mut Session) -> Vec<String> {
    let scan = Request::new(op("IndexScan")).uv(9).uv(0).uv(0).uv(0).u8(0);
    let scan = scan.u8(2).uv(0).uv(0).uv(0).uv(0);
    let mut reply = execute(session, &[scan]);
    assert_eq!((reply.status(), reply.u8()), (Ok(()), 1));
    let (count, _) = (reply.uv(), reply.uv());
    (0..count).map(|_| format!("{}={}", reply.str(), reply.str())).collect()
}

fn empty() -> Session {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    Session::new(Database::open(storage, Options::default()).expect("it is new"))
}

#[test]
fn an_index_declared_by_requests_is_kept_and_read() {
    let mut session = empty();
    let count = Request::new(op("IndexCount")).uv(0).uv(0).uv(0).u8(0);
    let last = Request::new(op("IndexAt")).uv(0).uv(0).uv(0).u8(0).u8(1).uv(0);
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            use_index(false),
            declare(),
            put(&[("a", "2"), ("b", "1"), ("c", "2")]),
            count,
            last,
            declare(),
        ],
    );
    assert_eq!((reply.status(), reply.status()), (Ok(()), Ok(())));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 1, 0));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 2, 0));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 3));
    assert_eq!((reply.status(), reply.u8()), (Ok(()), 1));
    assert_eq!(
        (reply.str(), reply.str(), reply.str()),
        ("2".into(), "c".into(), "2".into())
    );
    // What is declared already takes no commit.
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 2, 0));
    assert_eq!(entries(&mut session), ["1=b", "2=a", "2=c"]);
}

#[test]
fn a_batch_that_is_not_unique_halfway_fails_alone() {
    let mut session = empty();
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            use_index(true),
            declare(),
            put(&[("a", "1")]),
            put(&[("b", "2"), ("c", "1")]),
            put(&[("d", "3")]),
            // They exchange their index keys.
            put(&[("a", "3"), ("d", "1")]),
        ],
    );
    for expected in [Ok(()), Ok(())] {
        assert_eq!(reply.status(), expected);
    }
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 1, 0));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 2, 0));
    assert_eq!(reply.status(), Err("KV_UNIQUE".to_owned()));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 3, 0));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 4, 0));
    assert!(reply.is_at_end());
    assert_eq!(entries(&mut session), ["1=d", "3=a"]);
}

#[test]
fn a_core_without_its_rest_takes_no_index_keys_and_reads_no_index() {
    let mut session = empty();
    session.lacks_lazy();
    let delete = || {
        Request::new(op("Batch"))
            .u8(0)
            .uv(2)
            .u8(1)
            .uv(0)
            .str("a")
            .u8(1)
            .uv(0)
            .str("b")
    };
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            use_index(true),
            put(&[("a", "1")]),
            put(&[("a", "1"), ("b", "2")]),
            begin(1),
            within(1, put(&[("a", "1")])),
            delete(),
            declare(),
        ],
    );
    assert_eq!((reply.status(), reply.status()), (Ok(()), Ok(())));
    assert_eq!(reply.status(), Err("KV_IO".to_owned()));
    assert_eq!(reply.status(), Err("KV_IO".to_owned()));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 0));
    assert_eq!(reply.status(), Err("KV_IO".to_owned()));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 0, 0));
    // To be asked again.
    assert_eq!(reply.u8(), 2);
    assert!(reply.is_at_end());
}

#[test]
fn a_transaction_begun_before_the_declaration_has_to_run_again() {
    let mut session = empty();
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            use_index(false),
            begin(1),
            declare(),
            within(1, put(&[("a", "1")])),
            begin(2),
            within(2, put(&[("a", "1")])),
            commit(2),
        ],
    );
    assert_eq!((reply.status(), reply.status()), (Ok(()), Ok(())));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 0));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 1, 0));
    assert_eq!(reply.status(), Err("KV_CONFLICT".to_owned()));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 1));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 0, 0));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
    assert_eq!(entries(&mut session), ["1=a"]);
}

#[test]
fn a_transaction_that_drops_a_collection_writes_it_again_with_its_indexes() {
    let mut session = empty();
    let drop_it = || Request::new(op("Drop")).u8(0).str("");
    let mut reply = execute(
        &mut session,
        &[
            use_default(),
            use_index(true),
            declare(),
            put(&[("a", "1"), ("b", "2")]),
            begin(1),
            within(1, drop_it()),
            within(1, put(&[("c", "1"), ("d", "3")])),
            within(1, put(&[("d", "4")])),
            commit(1),
            begin(2),
            within(2, drop_it()),
            within(2, put(&[("e", "5"), ("f", "5")])),
            commit(2),
        ],
    );
    assert_eq!((reply.status(), reply.status()), (Ok(()), Ok(())));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 1, 0));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 2, 0));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 2));
    assert_eq!((reply.status(), reply.uv(), reply.u8()), (Ok(()), 0, 1));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 0, 0));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 0, 0));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 3));
    assert_eq!((reply.status(), reply.uv()), (Ok(()), 3));
    assert_eq!((reply.status(), reply.uv(), reply.u8()), (Ok(()), 0, 1));
    assert_eq!((reply.status(), reply.uv(), reply.uv()), (Ok(()), 0, 0));
    assert_eq!(reply.status(), Err("KV_UNIQUE".to_owned()));
    assert!(reply.is_at_end());
    assert_eq!(entries(&mut session), ["1=c", "4=d"]);
}
