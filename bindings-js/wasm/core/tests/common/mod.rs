//! Helpers that build messages and read replies, and a storage in memory whose writes can be made
//! to fail.

#![allow(
    missing_docs,
    dead_code,
    unreachable_pub,
    reason = "shared by test files that use a part of it each"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mangrove_bindings::protocol::Writer;
use mangrove_bindings::session::{Progress, Session};
use mangrove_engine::storage::{MemoryStorage, Storage, StorageFile};
use mangrove_engine::{AdvancedOptions, Database, Error, Options, Result};

/// Flag of an error: a collection and a key follow.
const HAS_KEYS: u8 = 2;

/// Returns the opcode of a request.
pub fn op(name: &str) -> u8 {
    let mut codes = mangrove_bindings::request::Request::CODES
        .iter()
        .chain(mangrove_bindings::request::Write::CODES);
    codes.find(|(found, _)| *found == name).expect("a request's name").1
}

#[derive(Clone)]
pub struct Request(Vec<u8>);

impl Request {
    pub fn new(op: u8) -> Self {
        Self(vec![op])
    }

    /// Returns the same write within a transaction.
    pub fn within(self, transaction: u64) -> Self {
        let mut request = Self::new(op("Within")).uv(transaction);
        request.0.extend(self.0);
        request
    }

    /// Returns the request about a value in parts with this body.
    pub fn into_part(self) -> Self {
        let mut request = Self::new(op("Lazy")).u8(0).uv(self.0.len() as u64);
        request.0.extend(self.0);
        request
    }

    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub fn uv(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.u8(value.to_le_bytes()[0])
    }

    pub fn str(self, text: &str) -> Self {
        let mut request = self.uv(text.len() as u64);
        request.0.extend_from_slice(text.as_bytes());
        request
    }
}

/// Returns a strict write to the first collection.
pub fn set(key: &str, value: &str) -> Request {
    Request::new(op("Set")).u8(0).uv(0).str(key).str(value)
}

/// Uses an index of the first collection, "value".
pub fn use_index(unique: bool) -> Request {
    Request::new(op("UseIndexes"))
        .uv(0)
        .uv(1)
        .str("value")
        .uv(1)
        .u8(u8::from(unique))
}

pub fn declare() -> Request {
    Request::new(op("DeclareIndexes")).u8(0).uv(0)
}

/// A batch of records whose index key is their value.
pub fn put(records: &[(&str, &str)]) -> Request {
    let mut request = Request::new(op("Batch")).u8(0).uv(records.len() as u64);
    for (key, value) in records {
        let len = u8::try_from(value.len()).expect("it is short");
        let index_keys = format!("\u{1}{}{value}", char::from(len));
        request = request.u8(4).uv(0).str(key).str(value).uv(0).str(&index_keys);
    }
    request
}

pub fn message(requests: &[Request]) -> Vec<u8> {
    requests.iter().flat_map(|request| request.0.clone()).collect()
}

pub fn execute(session: &mut Session, requests: &[Request]) -> Reply {
    execute_bytes(session, &message(requests))
}

pub fn execute_bytes(session: &mut Session, message: &[u8]) -> Reply {
    let (out, cut) = execute_once(session, message);
    assert_eq!(cut, None, "the reply is not cut");
    Reply::new(&out)
}

/// Executes a message like a host, piece by piece; returns each piece with its number of replies.
pub fn execute_pieces(session: &mut Session, requests: &[Request]) -> Vec<(Reply, usize)> {
    let message = message(requests);
    let (mut pieces, mut from, mut replies) = (Vec::new(), 0, 0);
    loop {
        let (out, cut) = execute_once(session, &message[from..]);
        let Some((at, more)) = cut else {
            pieces.push((Reply::new(&out), requests.len() - replies));
            return pieces;
        };
        pieces.push((Reply::new(&out), more));
        from += at;
        replies += more;
    }
}

/// Executes a message until its reply is full; returns where it was cut, and after how many replies.
pub fn execute_once(session: &mut Session, message: &[u8]) -> (Writer, Option<(usize, usize)>) {
    let mut out = Writer::default();
    let progress = if env!("CARGO_CRATE_NAME") == "session_waiting" {
        execute_waiting(session, message, &mut out)
    } else {
        session.execute_message(message, &mut out)
    };
    match progress {
        Progress::Cut { at, replies } => (out, Some((at, replies))),
        Progress::Done => (out, None),
        Progress::AwaitsFlush => panic!("a message waits that may not"),
    }
}

/// Executes a message like a host with asynchronous flushes. In turn, a flush ends before the
/// message continues, is released, or ends and leaves nothing to flush.
fn execute_waiting(session: &mut Session, message: &[u8], out: &mut Writer) -> Progress {
    let mut progress = session.start(message, out);
    for turn in 0.. {
        if progress != Progress::AwaitsFlush {
            break;
        }
        let is_begun = session.begin_flush().is_some();
        assert!(is_begun, "something waits");
        match turn % 3 {
            0 => {
                session.end_flush(Ok(())).expect("the flush succeeded");
                progress = session.resume(message, out);
            }
            1 => {
                session.release_flush();
                progress = session.resume(message, out);
                session.end_flush(Ok(())).expect("the flush succeeded");
            }
            _ => {
                session.end_flush(Ok(())).expect("the flush succeeded");
                assert!(session.begin_flush().is_none(), "nothing waits any more");
                progress = session.resume(message, out);
            }
        }
    }
    progress
}

pub struct Reply {
    bytes: Vec<u8>,
    at: usize,
}

impl Reply {
    pub fn new(out: &Writer) -> Self {
        Self {
            bytes: out.as_slice().to_vec(),
            at: 0,
        }
    }

    /// Returns the number of bytes in all.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub fn u8(&mut self) -> u8 {
        self.at += 1;
        self.bytes[self.at - 1]
    }

    pub fn uv(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.u8();
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let len = usize::try_from(self.uv()).expect("a length of this machine");
        self.at += len;
        self.bytes[self.at - len..self.at].to_vec()
    }

    pub fn str(&mut self) -> String {
        String::from_utf8(self.bytes()).expect("UTF-8")
    }

    /// Reads the status; returns the code of the error, if it is one.
    pub fn status(&mut self) -> std::result::Result<(), String> {
        if self.u8() == 0 {
            return Ok(());
        }
        let code = self.str();
        assert!(!self.str().is_empty(), "an error says what happened");
        if self.u8() & HAS_KEYS != 0 {
            self.str();
            if self.u8() == 1 {
                self.bytes();
            }
            for _ in 0..self.uv() {
                self.bytes();
            }
        }
        Err(code)
    }

    pub fn optional(&mut self) -> Option<Vec<u8>> {
        (self.u8() == 1).then(|| self.bytes())
    }

    /// Reads the key of an optional record.
    pub fn pair_key(&mut self) -> Option<String> {
        (self.u8() == 1).then(|| {
            let key = self.str();
            self.bytes();
            key
        })
    }
}

/// Reads a chunk of keys; returns whether it is the last, and the keys.
pub fn keys(reply: &mut Reply) -> (bool, Vec<String>) {
    assert_eq!(reply.status(), Ok(()));
    let is_done = reply.u8() == 1;
    let count = reply.uv();
    let _bytes = reply.uv();
    (is_done, (0..count).map(|_| reply.str()).collect())
}

pub fn open(storage: FaultyStorage) -> Session {
    let options = Options {
        advanced: AdvancedOptions {
            database_id: Some(1),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    Session::new(Database::open(Arc::new(storage), options).expect("a database in memory opens"))
}

#[derive(Clone)]
pub struct FaultyStorage {
    inner: Arc<MemoryStorage>,
    is_full: Arc<AtomicBool>,
    /// Length that no file may exceed.
    limit: Arc<AtomicU64>,
}

impl FaultyStorage {
    pub fn new() -> Self {
        Self {
            inner: Arc::new(MemoryStorage::new()),
            is_full: Arc::default(),
            limit: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    pub fn limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub fn fail_writes(&self, fail: bool) {
        self.is_full.store(fail, Ordering::Relaxed);
    }
}

impl Storage for FaultyStorage {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(FaultyFile {
            inner: self.inner.open(name, create)?,
            is_full: Arc::clone(&self.is_full),
            limit: Arc::clone(&self.limit),
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }
}

struct FaultyFile {
    inner: Arc<dyn StorageFile>,
    is_full: Arc<AtomicBool>,
    limit: Arc<AtomicU64>,
}

impl FaultyFile {
    fn check(&self, end: u64) -> Result<()> {
        if self.is_full.load(Ordering::Relaxed) || end > self.limit.load(Ordering::Relaxed) {
            return Err(Error::StorageFull { context: "test".into() });
        }
        Ok(())
    }
}

impl StorageFile for FaultyFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.check(offset + from.len() as u64)?;
        self.inner.write_at(offset, from)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check(len)?;
        self.inner.set_len(len)
    }
}
