//! Replies larger than one piece.

use mangrove_bindings::protocol::REPLY_BYTES;
use mangrove_bindings::session::Session;

use super::common::{FaultyStorage, Reply, Request, execute, execute_pieces, op, open, set};
use super::{get, use_default};

const VALUE_BYTES: usize = 1 << 20;
/// In place of a value: the reply has no more of them.
const CUT: u8 = 2;

fn value(of: usize) -> String {
    format!("{of:04}").repeat(VALUE_BYTES / 4)
}

/// A session whose records 0 to 9 have values of a megabyte.
fn prepared(storage: FaultyStorage) -> Session {
    let mut session = open(storage);
    execute(&mut session, &[use_default()]);
    for key in 0..10 {
        let mut reply = execute(&mut session, &[set(&key.to_string(), &value(key))]);
        assert_eq!(reply.status(), Ok(()));
    }
    session
}

fn get_many(view: u64, id: u64, keys: &[usize]) -> Request {
    let request = Request::new(op("GetMany")).uv(view).uv(0).uv(id).uv(keys.len() as u64);
    keys.iter().fold(request, |request, key| request.str(&key.to_string()))
}

/// Reads values until the reply ends or is cut; returns how many there are, and whether it was cut.
fn values(reply: &mut Reply, keys: &[usize]) -> (usize, bool) {
    assert_eq!(reply.status(), Ok(()));
    for (index, key) in keys.iter().enumerate() {
        match reply.u8() {
            CUT => return (index, true),
            1 => assert!(reply.str() == value(*key), "the value of {key}"),
            flag => panic!("{flag} in place of the value of {key}"),
        }
    }
    (keys.len(), false)
}

#[test]
fn no_piece_is_much_larger_than_allowed() {
    let mut session = prepared(FaultyStorage::new());
    let keys: Vec<usize> = (0..60).map(|place| place % 10).collect();
    let requests: Vec<Request> = keys.iter().map(|key| get(&key.to_string())).collect();
    let pieces = execute_pieces(&mut session, &requests);
    assert!(
        pieces.len() >= 60 * VALUE_BYTES / (REPLY_BYTES + VALUE_BYTES),
        "{}",
        pieces.len()
    );
    assert_eq!(pieces.iter().map(|(_, replies)| replies).sum::<usize>(), 60);
    let mut left = keys.iter();
    for (mut reply, replies) in pieces {
        assert!(reply.len() <= REPLY_BYTES + VALUE_BYTES + 10, "{}", reply.len());
        for key in left.by_ref().take(replies) {
            assert_eq!(reply.status(), Ok(()));
            assert!(reply.optional() == Some(value(*key).into_bytes()), "the value of {key}");
        }
        assert!(reply.is_at_end());
    }
}

#[test]
fn writes_are_committed_with_their_piece() {
    let storage = FaultyStorage::new();
    let mut session = prepared(storage.clone());
    // The lookups see what was written in the same message, before and after the cut.
    let mut requests = vec![set("a", "1"), get("a")];
    requests.extend((0..12).map(|key| get(&(key % 10).to_string())));
    requests.extend([get("a"), set("b", "2"), get("b")]);
    let mut pieces = execute_pieces(&mut session, &requests);
    assert_eq!(pieces.len(), 2);
    let (reply, _) = &mut pieces[0];
    assert_eq!(reply.status(), Ok(()));
    reply.uv();
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
    let (mut last, replies) = pieces.pop().expect("there are two");
    for _ in 3..replies {
        assert_eq!(last.status(), Ok(()));
        assert!(last.optional().is_some());
    }
    assert_eq!((last.status(), last.optional()), (Ok(()), Some(b"1".to_vec())));
    assert_eq!(last.status(), Ok(()));
    last.uv();
    assert_eq!((last.status(), last.optional()), (Ok(()), Some(b"2".to_vec())));
    assert!(last.is_at_end());

    // A write after the cut fails alone.
    let message = super::message(&requests);
    let (_, cut) = super::common::execute_once(&mut session, &message);
    let (at, _) = cut.expect("the reply is cut");
    storage.fail_writes(true);
    let (out, _) = super::common::execute_once(&mut session, &message[at..]);
    let mut reply = Reply::new(&out);
    for _ in 3..replies {
        assert_eq!(reply.status(), Ok(()));
        assert!(reply.optional().is_some());
    }
    assert_eq!((reply.status(), reply.optional()), (Ok(()), Some(b"1".to_vec())));
    assert_eq!(reply.status(), Err("KV_QUOTA_EXCEEDED".to_owned()));
}

#[test]
fn what_is_left_of_many_values_is_read_from_the_same_state() {
    let mut session = prepared(FaultyStorage::new());
    let keys: Vec<usize> = (0..30).map(|place| place % 10).collect();
    let (mut view, mut at, mut replies) = (0, 0, 0);
    loop {
        let mut reply = execute(&mut session, &[get_many(view, 7, &keys[at..])]);
        assert!(reply.len() <= REPLY_BYTES + VALUE_BYTES + 20, "{}", reply.len());
        let (count, is_cut) = values(&mut reply, &keys[at..]);
        assert!(reply.is_at_end());
        (view, at, replies) = (7, at + count, replies + 1);
        if !is_cut {
            break;
        }
        // The rest of the reply shows the state of its first part.
        for key in 0..10 {
            execute(&mut session, &[set(&key.to_string(), "changed")]);
        }
    }
    assert_eq!((at, replies), (30, 4));
    let close = Request::new(op("SnapshotClose")).uv(7);
    let mut reply = execute(&mut session, &[close, get_many(7, 7, &[1])]);
    assert_eq!(reply.status(), Ok(()));
    assert_eq!(reply.status(), Err("KV_CLOSED".to_owned()));
}

#[test]
fn many_values_include_what_the_same_message_wrote() {
    let mut session = prepared(FaultyStorage::new());
    let keys: Vec<usize> = (0..10).chain([11]).collect();
    let mut pieces = execute_pieces(&mut session, &[set("11", &value(11)), get_many(0, 7, &keys), get("11")]);
    let (mut reply, _) = pieces.swap_remove(0);
    assert_eq!(reply.status(), Ok(()));
    reply.uv();
    let (count, is_cut) = values(&mut reply, &keys);
    assert!(is_cut && count < keys.len());
    execute(&mut session, &[set("11", "changed")]);
    let mut reply = execute(&mut session, &[get_many(7, 7, &keys[count..])]);
    assert_eq!(values(&mut reply, &keys[count..]), (keys.len() - count, false));
}

#[test]
fn what_is_read_again_because_the_writes_before_it_found_no_room_is_not_cut() {
    let storage = FaultyStorage::new();
    let mut session = prepared(storage.clone());
    storage.fail_writes(true);
    let mut requests: Vec<Request> = (0..10).map(|key| set(&key.to_string(), "short")).collect();
    requests.extend((0..10).map(|key| get(&key.to_string())));
    let mut reply = execute(&mut session, &requests);
    for _ in 0..10 {
        assert_eq!(reply.status(), Err("KV_QUOTA_EXCEEDED".to_owned()));
    }
    for key in 0..10 {
        assert_eq!(reply.status(), Ok(()));
        assert!(reply.optional() == Some(value(key).into_bytes()), "the value of {key}");
    }
    assert!(reply.is_at_end() && reply.len() > REPLY_BYTES);
}
