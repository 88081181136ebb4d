//! Recognizes the files of a database, so that no other program's file is removed.

use crate::error::Result;
use crate::log;
use crate::pages::DATA_FILE;
use crate::pages::{AREA_BYTES, is_data_file};
use crate::storage::StorageFile;

/// Whether the file `name`, `data` or `log`, is a database's.
///
/// True if the file has our magic in one of its places, or is what an interrupted creation leaves.
/// Remove a file that is not ours, or is damaged in all these places, only on explicit request.
///
/// # Errors
/// Those of reading the file.
pub fn is_database_file(name: &str, file: &dyn StorageFile) -> Result<bool> {
    let len = file.len()?;
    let mut front = vec![0; usize::try_from(len.min(AREA_BYTES)).unwrap_or_default()];
    file.read_at(0, &mut front)?;
    Ok(match name {
        DATA_FILE => is_data_file(&front, len),
        _ => log::is_log_file(&front),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::log::LOG_FILE;
    use crate::storage::{MemoryStorage, Storage};
    use crate::{Database, Durability, Options};

    fn is_ours(name: &str, bytes: &[u8]) -> bool {
        let file = MemoryStorage::new().open(name, true).unwrap();
        file.write_at(0, bytes).unwrap();
        is_database_file(name, &*file).unwrap()
    }

    #[test]
    fn a_copy_of_the_magic_is_enough() {
        let storage = Arc::new(MemoryStorage::new());
        let database = Database::open(Arc::clone(&storage) as Arc<dyn Storage>, Options::default()).unwrap();
        for _ in 0..2 {
            let mut transaction = database.begin().unwrap();
            transaction.set("", b"key", b"value").unwrap();
            transaction.commit(Durability::Strict).unwrap();
            database.checkpoint().unwrap();
        }
        let mut transaction = database.begin().unwrap();
        transaction.set("", b"key", b"value").unwrap();
        transaction.commit(Durability::Strict).unwrap();
        drop(database);
        for (name, copies) in [(DATA_FILE, &[0, 2048, 4096, 6144][..]), (LOG_FILE, &[0, 512])] {
            let file = storage.open(name, false).unwrap();
            assert!(is_database_file(name, &*file).unwrap());
            let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
            file.read_at(0, &mut bytes).unwrap();
            for (at, kept) in copies.iter().enumerate() {
                let mut damaged = bytes.clone();
                for copy in copies.iter().filter(|copy| *copy != kept) {
                    damaged[*copy..copy + 8].fill(b'x');
                }
                assert!(is_ours(name, &damaged), "{name} by its copy {at}");
                damaged[*kept..kept + 8].fill(b'x');
                assert!(!is_ours(name, &damaged), "{name}");
            }
        }
    }

    #[test]
    fn remains_of_a_creation_are_ours_and_foreign_files_are_not() {
        for name in [DATA_FILE, LOG_FILE] {
            for ours in [&b""[..], &[0; 4096], &[0; 8192]] {
                assert!(is_ours(name, ours));
            }
            for other in [&b"columns,of,another,program"[..], b"MANGRBAK", b"M"] {
                assert!(!is_ours(name, other));
            }
        }
        assert!(!is_ours(DATA_FILE, &[0; 8193]), "nothing is created so long");
        assert!(is_ours(LOG_FILE, &vec![0; 100_000]), "the first half was not begun");
    }
}
