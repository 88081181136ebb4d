//! Files that power cuts left behind: the blocks of checkpoints that never came to be are not part of the database.

use std::sync::Arc;

use mangrove_engine::storage::sim::{CrashPolicy, SimRng, SimStorage};
use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::{Completeness, Database, Options, RecoveredRoot};

use crate::common::{Flavour, History, State, options, read_state, run, without_empty};
use crate::{FLAVOURS, Files, blocks, newest_slot, recovered_files};

/// Files that survived several power cuts, the last one at operation `last`, and every state that was ever
/// on the way to be committed.
fn crashed(flavour: Flavour, seed: u64, last: u64) -> (Files, Vec<State>) {
    let mut rng = SimRng::new(seed);
    let mut history = History::default();
    let mut states = Vec::new();
    let mut storage = SimStorage::new();
    for round in 0..4 {
        let cut = 20 + rng.below(150);
        storage.cut_at(if round == 3 { last } else { cut });
        let shared: Arc<dyn Storage> = Arc::new(storage.clone());
        // It may end before the cut.
        let _ = run(&shared, flavour, seed * 4 + round, 30, &mut history);
        drop(shared);
        states.extend(
            history
                .states
                .iter()
                .skip(history.acknowledged as usize)
                .map(without_empty),
        );
        let policy = CrashPolicy::ALL[rng.below(CrashPolicy::ALL.len() as u64) as usize];
        storage = SimStorage::from_files(storage.crash(policy, rng.next_u64()));
    }
    (storage.files(), states)
}

#[test]
fn a_crash_alone_is_no_damage() {
    let (mut exact, mut finished) = (0, 0);
    for number in 0..800 {
        let (seed, last) = (number / 20, number % 20 * 2);
        let flavour = FLAVOURS[seed as usize % 4];
        let (mut files, states) = crashed(flavour, seed, last);
        let context = format!("{flavour:?} {seed} {last}");
        let database = Database::open(Arc::new(MemoryStorage::from_files(files.clone())), Options::default())
            .expect("a crash does no harm");
        let opened = read_state(&database.snapshot()).expect("it is intact");
        drop(database);
        let (report, state) = recovered_files(&files, &context);
        let is_exact = report.completeness == Completeness::Exact;
        assert_ne!(report.completeness, Completeness::Salvage, "{context}");
        assert!(state == opened || !is_exact && states.contains(&state), "{context}");
        exact += u64::from(is_exact);
        // The cut may also have hit the superblock. A newer checkpoint then counts if all of it is there.
        let data = files.get_mut("data").expect("it was created");
        let older = 1 - newest_slot(data);
        data[older * 4096..(older + 1) * 4096].fill(0x77);
        let (report, state) = recovered_files(&files, &context);
        assert_eq!(report.completeness, Completeness::Reconstructed, "{context}");
        if state != opened {
            finished += 1;
            assert!(states.contains(&state), "{context}");
        }
    }
    assert!(exact > 700 && finished > 3, "{exact} {finished}");
}

/// Blocks of unfinished checkpoints are newer than what counts, but the free map tells that they lie in free space.
#[test]
fn unfinished_checkpoints_do_not_fill_the_place_of_lost_nodes() {
    let mut checked = 0;
    for seed in 0..200 {
        let (mut files, _) = crashed(Flavour::Batches, seed, 3 + seed);
        let database = Database::open(
            Arc::new(MemoryStorage::from_files(files.clone())),
            options(Flavour::Batches, 1),
        )
        .expect("no harm done");
        let opened = read_state(&database.snapshot()).expect("it is intact");
        drop(database);
        let data = files.get_mut("data").expect("it was created");
        for block in blocks(data)
            .iter()
            .filter(|block| data[block.start + 4] == 2)
            .map(|block| block.start)
            .collect::<Vec<_>>()
        {
            data[block + 10] ^= 1;
        }
        let (report, state) = recovered_files(&files, &format!("no inner nodes {seed}"));
        if matches!(report.root, RecoveredRoot::Superblock { .. }) && report.completeness == Completeness::Salvage {
            checked += 1;
            assert!(state == opened, "seed {seed}: {:?}", report.damaged_ranges);
        }
    }
    assert!(checked > 50, "{checked}");
}
