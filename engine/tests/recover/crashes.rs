//! Files that power cuts left behind: blocks of unfinished checkpoints are not part of the
//! database.

use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::{CrashPolicy, SimRng, SimStorage};
use mangrove_engine::{Completeness, Database, Options, RecoveredRoot};

use super::{FLAVOURS, Files, blocks, newest_slot, recovered_files};
use crate::common::{Flavour, History, State, options, read_state, run, without_empty};

/// The files after several power cuts, and their possible states.
struct Crashed {
    files: Files,
    /// Every state that may be there: in each round, from the last acknowledged one on.
    recent: Vec<State>,
    /// Every state that was committed, or was about to be.
    all: Vec<State>,
}

impl Crashed {
    /// Returns the state that opening the files yields.
    fn open(&self, options: Options) -> State {
        let storage = MemoryStorage::from_files(self.files.clone());
        let database = Database::open(Arc::new(storage), options).expect("a crash does no harm");
        read_state(&database.snapshot()).expect("it is intact")
    }

    /// Destroys both copies of a superblock.
    fn lose_slot(&mut self, slot: usize) {
        let data = self.files.get_mut("data").expect("it was created");
        data[slot * 4096..(slot + 1) * 4096].fill(0x77);
    }
}

/// Returns the files after several power cuts, the last one at operation `last`.
fn crashed(flavour: Flavour, seed: u64, last: u64) -> Crashed {
    let mut rng = SimRng::new(seed);
    let mut history = History::remembering();
    let (mut recent, mut all) = (Vec::new(), Vec::new());
    let mut storage = SimStorage::new();
    for round in 0..4 {
        let cut = 20 + rng.below(150);
        storage.cut_at(if round == 3 { last } else { cut });
        let shared: Arc<dyn Storage> = Arc::new(storage.clone());
        // The workload may end before the cut.
        let _ = run(&shared, flavour, seed * 4 + round, 30, &mut history);
        drop(shared);
        let states = history.states.iter().map(|state| without_empty(state));
        recent.extend(states.clone().skip(history.acknowledged as usize));
        all.extend(states);
        let policy = CrashPolicy::ALL[rng.below(CrashPolicy::ALL.len() as u64) as usize];
        storage = SimStorage::from_files(storage.crash(policy, rng.next_u64()));
    }
    Crashed {
        files: storage.files(),
        recent,
        all,
    }
}

/// Returns images of all flavours, with names for messages.
fn images() -> impl Iterator<Item = (Crashed, Flavour, String)> {
    (0..1600).map(|number| {
        let (seed, last) = (number / 40, number % 40);
        let flavour = FLAVOURS[seed as usize % 4];
        (
            crashed(flavour, seed, last),
            flavour,
            format!("{flavour:?} {seed} {last}"),
        )
    })
}

#[test]
fn a_crash_alone_is_no_damage() {
    let (mut exact, mut finished) = (0, 0);
    for (mut image, _, context) in images() {
        let opened = image.open(Options::default());
        let (report, state) = recovered_files(&image.files, &context);
        let is_exact = report.completeness == Completeness::Exact;
        assert_ne!(report.completeness, Completeness::Salvage, "{context}");
        assert!(
            state == opened || !is_exact && image.recent.contains(&state),
            "{context}"
        );
        exact += u64::from(is_exact);
        // The cut may also have hit the superblock. A newer checkpoint then counts if it is
        // complete.
        image.lose_slot(1 - newest_slot(&image.files["data"]));
        let (report, state) = recovered_files(&image.files, &context);
        assert_eq!(report.completeness, Completeness::Reconstructed, "{context}");
        if state != opened {
            finished += 1;
            assert!(image.recent.contains(&state), "{context}");
        }
    }
    assert!(exact > 1500 && finished > 3, "{exact} {finished}");
}

/// Blocks of unfinished checkpoints do not replace lost nodes. They are newer than the current
/// checkpoint, but the free map shows that they lie in free space.
#[test]
fn unfinished_checkpoints_do_not_fill_the_place_of_lost_nodes() {
    let mut checked = 0;
    for seed in 0..200 {
        let mut image = crashed(Flavour::Batches, seed, 3 + seed);
        let opened = image.open(options(Flavour::Batches, 1));
        let data = image.files.get_mut("data").expect("it was created");
        for block in blocks(data)
            .iter()
            .filter(|block| data[block.start + 4] == 2)
            .map(|block| block.start)
            .collect::<Vec<_>>()
        {
            data[block + 10] ^= 1;
        }
        let (report, state) = recovered_files(&image.files, &format!("no inner nodes {seed}"));
        if matches!(report.root, RecoveredRoot::Superblock { .. }) && report.completeness == Completeness::Salvage {
            checked += 1;
            assert!(state == opened, "seed {seed}: {:?}", report.damaged_ranges);
        }
    }
    assert!(checked > 50, "{checked}");
}

/// The newest superblock is lost after a power cut. A result not reported as salvage is one state,
/// though perhaps not the newest.
#[test]
fn without_the_newest_superblock_one_state_opens_or_the_loss_is_reported() {
    let (mut newest, mut older) = (0, 0);
    for (mut image, flavour, context) in images() {
        let opened = image.open(Options::default());
        image.lose_slot(newest_slot(&image.files["data"]));
        let (report, state) = recovered_files(&image.files, &context);
        if report.completeness == Completeness::Salvage {
            continue;
        }
        newest += u64::from(state == opened);
        older += u64::from(state != opened);
        // A checkpoint has the unflushed commits, but the log may no longer have them: nothing
        // tells which checkpoint that was.
        let can_tell = flavour != Flavour::Mixed || matches!(report.root, RecoveredRoot::Superblock { .. });
        assert!(!can_tell || image.all.contains(&state), "{context}");
    }
    assert!(newest > 1500 && older > 20, "{newest} {older}");
}
