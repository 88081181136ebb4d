use std::collections::BTreeSet;

use super::*;

fn written() -> (SimStorage, Arc<dyn StorageFile>) {
    let storage = SimStorage::new();
    let file = storage.open("f", true).unwrap();
    file.write_at(0, &[1; 1024]).unwrap();
    file.flush().unwrap();
    file.write_at(0, &[2; 2048]).unwrap();
    (storage, file)
}

#[test]
fn only_flushed_bytes_are_certain() {
    let (storage, file) = written();
    assert_eq!(storage.crash(CrashPolicy::Nothing, 0)["f"], [1; 1024]);
    assert_eq!(storage.crash(CrashPolicy::Everything, 0)["f"], [2; 2048]);
    let mixed = (0..64).any(|seed| {
        let image = &storage.crash(CrashPolicy::RandomSectors, seed)["f"];
        image
            .chunks(512)
            .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
            && image.contains(&1)
            && image.contains(&2)
    });
    assert!(mixed, "some seed keeps some sectors");
    let torn = (0..64).any(|seed| {
        let image = &storage.crash(CrashPolicy::Torn, seed)["f"];
        image
            .chunks(512)
            .any(|sector| sector.contains(&2) && !sector.iter().all(|byte| *byte == 2))
    });
    assert!(torn, "some seed tears a sector");
    let garbage = (0..64).any(|seed| {
        storage.crash(CrashPolicy::Garbage, seed)["f"]
            .iter()
            .any(|byte| *byte > 2)
    });
    assert!(garbage, "some seed writes garbage");
    assert_eq!(storage.crash(CrashPolicy::Torn, 7), storage.crash(CrashPolicy::Torn, 7));
    file.flush().unwrap();
    assert_eq!(storage.crash(CrashPolicy::Nothing, 0)["f"], [2; 2048]);
}

#[test]
fn cuts_and_faults_hit_the_counted_operation() {
    let (storage, file) = written();
    assert_eq!(storage.counters().operations, 4);
    storage.set_fault(Some(Fault {
        keeps: Keeps::Half,
        ..Fault::once(4, FaultKind::StorageFull)
    }));
    assert!(matches!(file.write_at(0, &[3; 10]), Err(Error::StorageFull { .. })));
    assert_eq!(storage.files()["f"][..10], [3, 3, 3, 3, 3, 2, 2, 2, 2, 2]);
    storage.cut_at(5);
    assert!(file.flush().is_err());
    assert!(file.write_at(0, &[4]).is_err());
    assert_eq!(storage.crash(CrashPolicy::Nothing, 0)["f"], [1; 1024]);
}

#[test]
fn a_failed_flush_can_forget_what_readers_see() {
    let (storage, file) = written();
    storage.set_fault(Some(Fault {
        forgets: true,
        ..Fault::once(4, FaultKind::Io)
    }));
    assert!(file.flush().is_err());
    file.flush().unwrap();
    assert_eq!(storage.files()["f"], [2; 2048]);
    assert_eq!(storage.crash(CrashPolicy::Everything, 0)["f"], [1; 1024]);
}

#[test]
fn reads_fail_on_request() {
    let (storage, file) = written();
    storage.set_read_fault(Some(Fault::from(1, FaultKind::Io)));
    file.read_at(0, &mut [0; 8]).unwrap();
    assert!(matches!(file.read_at(0, &mut [0; 8]), Err(Error::Io(_))));
    assert!(matches!(file.read_at(0, &mut [0; 8]), Err(Error::Io(_))));
    storage.set_read_fault(None);
    file.read_at(0, &mut [0; 8]).unwrap();
    assert_eq!((storage.counters().reads, storage.counters().bytes_read), (4, 32));
}

#[test]
fn a_creation_that_was_cut_may_be_lost_and_a_removed_file_is_gone() {
    let storage = SimStorage::new();
    storage.cut_at(0);
    assert!(storage.open("f", true).is_err());
    assert!(storage.crash(CrashPolicy::Nothing, 0).is_empty());
    assert!(storage.crash(CrashPolicy::Everything, 0)["f"].is_empty());
    let kept = (0..64).filter(|seed| storage.crash(CrashPolicy::Torn, *seed).contains_key("f"));
    assert!((1..64).contains(&kept.count()));
    let (storage, file) = written();
    drop(file);
    storage.remove("f").unwrap();
    assert!(storage.crash(CrashPolicy::Everything, 0).is_empty());
}

#[test]
fn lengths_can_be_lost_and_can_be_kept_without_their_bytes() {
    let storage = SimStorage::new();
    let file = storage.open("f", true).unwrap();
    file.write_at(0, &[1; 2048]).unwrap();
    file.flush().unwrap();
    file.set_len(512).unwrap();
    let lens = |storage: &SimStorage| -> BTreeSet<usize> {
        (0..64)
            .map(|seed| storage.crash(CrashPolicy::RandomSectors, seed)["f"].len())
            .collect()
    };
    assert_eq!(lens(&storage), [512, 2048].into());
    file.flush().unwrap();
    file.write_at(512, &[2; 1024]).unwrap();
    assert_eq!(lens(&storage), [512, 1024, 1536].into());
    let images = (0..64).map(|seed| storage.crash(CrashPolicy::RandomSectors, seed)["f"].clone());
    assert!(images.into_iter().any(|image| image.ends_with(&[0; 512])));
}
