//! A database with indexes, which the package cannot declare yet.

use std::sync::Arc;

use mangrove_bindings::session::Session;
use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::{Database, Durability, IndexDefinition, Options};

use super::common::{Request, execute, op, set};
use super::{begin, commit, get, use_default, within};

/// A database whose default collection has an index of values with one record, "a".
fn indexed(storage: &Arc<dyn Storage>) -> Session {
    let database = Database::open(Arc::clone(storage), Options::default()).expect("it is new");
    let mut transaction = database.begin().expect("it can be written");
    transaction.set_codecs("", "any", "json").expect("it is new");
    transaction.commit(Durability::Strict).expect("memory has room");
    let definition = IndexDefinition {
        name: "value".to_owned(),
        version: 1,
        unique: false,
    };
    let values = database
        .indexed_collection("", vec![(definition, Box::new(|_, value| vec![value.to_vec()]))])
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
    session.lack_rest();
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
