use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptimisticTransaction, OptionalExtension, Rows, Statement};

use super::{Engine, Reader, Setup, copy};
use crate::records::Records;

/// Opens a connection. The cache belongs to a connection, and so to a thread: each has all of it.
fn connect(path: &Path, cache_bytes: usize) -> Connection {
    let connection = Connection::open(path).expect("it can be opened");
    let kibibytes = -((cache_bytes >> 10) as i64);
    connection
        .pragma_update(None, "cache_size", kibibytes)
        .expect("a new connection");
    connection
}

pub(crate) fn open(directory: &Path, setup: Setup) -> Sqlite {
    let path = directory.join("sqlite");
    let writer = connect(&path, setup.cache_bytes);
    writer
        .execute_batch(
            "PRAGMA journal_mode = WAL;
            CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;",
        )
        .expect("a new database");
    Sqlite {
        path,
        cache_bytes: setup.cache_bytes,
        writer: Mutex::new(writer),
    }
}

pub(crate) struct Sqlite {
    path: PathBuf,
    cache_bytes: usize,
    writer: Mutex<Connection>,
}

impl Sqlite {
    /// Locks the writer. `FULL` flushes the log at each commit, `NORMAL` only at checkpoints.
    fn writer(&self, durable: bool) -> MutexGuard<'_, Connection> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pragma = writer
            .prepare_cached(if durable {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            })
            .expect("it is valid");
        pragma.raw_execute().expect("no transaction is open");
        drop(pragma);
        writer
    }
}

fn commit(transaction: OptimisticTransaction<'_>) {
    transaction.commit().expect("it can be written");
}

impl Engine for Sqlite {
    fn insert(&self, records: &Records<'_>, durable: bool) {
        let mut writer = self.writer(durable);
        let transaction = writer.transaction().expect("it can be written");
        {
            let mut insert = transaction
                .prepare_cached("INSERT OR REPLACE INTO records VALUES (?1, ?2)")
                .expect("it is valid");
            records.each(|key, value| {
                insert.execute((key, value)).expect("it can be written");
            });
        }
        commit(transaction);
    }

    fn remove(&self, records: &Records<'_>) {
        let mut writer = self.writer(true);
        let transaction = writer.transaction().expect("it can be written");
        {
            let mut delete = transaction
                .prepare_cached("DELETE FROM records WHERE key = ?1")
                .expect("it is valid");
            records.each_key(|key| {
                delete.execute([key]).expect("it can be written");
            });
        }
        commit(transaction);
    }

    fn read(&self, work: &mut dyn FnMut(&mut dyn Reader)) {
        let connection = connect(&self.path, self.cache_bytes);
        connection.execute_batch("BEGIN").expect("a new connection");
        let prepare = |query: &str| connection.prepare(query).expect("it is valid");
        work(&mut SqliteReader {
            get: prepare("SELECT value FROM records WHERE key = ?1"),
            range: prepare("SELECT key, value FROM records WHERE key >= ?1 ORDER BY key LIMIT ?2"),
            forwards: prepare("SELECT key, value FROM records ORDER BY key"),
            backwards: prepare("SELECT key, value FROM records ORDER BY key DESC"),
        });
    }
}

struct SqliteReader<'a> {
    get: Statement<'a>,
    range: Statement<'a>,
    forwards: Statement<'a>,
    backwards: Statement<'a>,
}

fn count(mut rows: Rows<'_>, into: &mut Vec<u8>) -> usize {
    let mut count = 0;
    while let Some(row) = rows.next().expect("it can be read") {
        copy(blob(row, 1), into);
        count += 1;
    }
    count
}

fn blob<'a>(row: &'a rusqlite::Row<'_>, column: usize) -> &'a [u8] {
    row.get_ref(column)
        .and_then(|value| Ok(value.as_blob()?))
        .expect("columns are blobs")
}

impl Reader for SqliteReader<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let found = self.get.query_row([key], |row| {
            copy(blob(row, 0), value);
            Ok(())
        });
        found.optional().expect("it can be read").is_some()
    }

    fn range(&mut self, key: &[u8], limit: usize, value: &mut Vec<u8>) -> usize {
        let rows = self.range.query((key, limit as i64));
        count(rows.expect("it can be read"), value)
    }

    fn scan(&mut self, reverse: bool, value: &mut Vec<u8>) -> usize {
        let scan = if reverse {
            &mut self.backwards
        } else {
            &mut self.forwards
        };
        count(scan.query([]).expect("it can be read"), value)
    }
}
