//! Serves a client and, as the first argument says, makes one more `set` or `get` than without it.
//! `path-files.mjs` counts what code that runs.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{Reply, Request, message, op, set};
use mangrove_bindings::protocol::Writer;
use mangrove_bindings::session::{Progress, Session};
use mangrove_engine::testing::sim::SimStorage;
use mangrove_engine::{Database, Options};

fn main() {
    let call = std::env::args().nth(1);
    let database = Database::open(Arc::new(SimStorage::new()), Options::default()).expect("the database is new");
    let mut session = Session::new(database);
    session.begin_inheritance(1);
    let client = session.attach("client", false, None).expect("there is room");
    let mut seq = 0;
    let mut ask = |request: Request| {
        seq += 1;
        session.select(client);
        session.begin_message(seq);
        let mut out = Writer::default();
        assert_eq!(session.execute_message(&message(&[request]), &mut out), Progress::Done);
        assert_eq!(Reply::new(&out).status(), Ok(()));
        // As the host asks after each message.
        let _ = (session.take_state(false), session.next_to_wake());
    };
    ask(Request::new(op("Use")).uv(0).str("").str("any").str("json"));
    ask(set("a", "1"));
    match call.as_deref() {
        Some("set") => ask(set("b", "2")),
        Some("get") => ask(Request::new(op("Get")).uv(0).uv(0).str("a")),
        _ => {}
    }
}
