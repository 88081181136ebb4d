//! Proves on a stable compiler, in every test run, that the committed corpus of the fuzz targets
//! and several thousand mutations of it still pass. `fuzz/` looks for new inputs; those that found
//! a bug stay in the corpus.

#![allow(clippy::print_stderr, reason = "a panic has to say which input caused it")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use mangrove_engine::testing::fuzzing::{TARGETS, Target, seeds};
use mangrove_engine::testing::sim::SimRng;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus-seeds")
}

/// Returns the name and bytes of each file of a target, sorted by name.
fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = corpus().join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(&directory)
        .expect("each target has a corpus")
        .map(|entry| entry.expect("the corpus can be listed").path())
        .collect();
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().expect("it was listed").to_string_lossy().into_owned();
        (name, fs::read(path).expect("the corpus can be read"))
    };
    files.into_iter().map(read).collect()
}

/// Runs a target; names the input if the target panics.
fn run(target: Target, bytes: &[u8], context: &str) -> bool {
    catch_unwind(AssertUnwindSafe(|| target(bytes))).unwrap_or_else(|panic| {
        eprintln!("{context}");
        resume_unwind(panic)
    })
}

/// Makes one to four small changes, as a fuzzer does.
fn mutate(bytes: &mut Vec<u8>, rng: &mut SimRng) {
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let len = (1 + rng.below(8) as usize).min(bytes.len() - at);
        match rng.below(7) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.next_u64() as u8),
            2 => drop(bytes.drain(at..at + len)),
            3 => bytes[at..at + len].fill([0, 0x7F, 0x80, 0xFF][rng.below(4) as usize]),
            4 => {
                let part = bytes[at..at + len].to_vec();
                let to = rng.below((bytes.len() - len) as u64 + 1) as usize;
                bytes[to..to + len].copy_from_slice(&part);
            }
            5 if len > 0 => bytes[at] = bytes[at].wrapping_add([1, 255][rng.below(2) as usize]),
            _ if len > 0 => bytes[at] ^= 1 << rng.below(8),
            _ => {}
        }
    }
}

fn replay(name: &str, mutations: u64) {
    let (_, target) = TARGETS
        .into_iter()
        .find(|(other, _)| *other == name)
        .expect("it is a target");
    let mut rng = SimRng::new(3);
    let inputs = inputs(name);
    for (file, bytes) in &inputs {
        run(target, bytes, &format!("{name}/{file}"));
    }
    for number in 0..mutations {
        let (file, bytes) = &inputs[rng.below(inputs.len() as u64) as usize];
        let mut bytes = bytes.clone();
        mutate(&mut bytes, &mut rng);
        run(target, &bytes, &format!("{name}/{file}, mutation {number}"));
    }
}

#[test]
fn operations() {
    replay("operations", 2000);
}

#[test]
fn superblock() {
    replay("superblock", 20_000);
}

#[test]
fn block() {
    replay("block", 20_000);
}

#[test]
fn node() {
    replay("node", 20_000);
}

#[test]
fn free_map() {
    replay("free_map", 20_000);
}

#[test]
fn catalog() {
    replay("catalog", 20_000);
}

#[test]
fn reference() {
    replay("reference", 20_000);
}

#[test]
fn open() {
    replay("open", 2500);
}

/// The targets accept the seeds as valid, and so get beyond the first check. The committed corpus
/// is that of this format.
#[test]
fn the_committed_seeds_are_accepted() {
    for (name, seed, bytes) in seeds().expect("memory works") {
        let (_, target) = TARGETS
            .into_iter()
            .find(|(other, _)| *other == name)
            .expect("it is a target");
        let context = format!("{name}/{seed}");
        let committed = fs::read(corpus().join(name).join(seed)).unwrap_or_default();
        assert!(run(target, &bytes, &context), "{context}");
        assert!(committed == bytes, "{context} is out of date: see fuzz/README.md");
    }
}

#[test]
#[ignore = "writes the corpus that the other tests read"]
fn write_seeds() {
    for (name, seed, bytes) in seeds().expect("memory works") {
        let directory = corpus().join(name);
        fs::create_dir_all(&directory).expect("the corpus can be written");
        fs::write(directory.join(seed), bytes).expect("the corpus can be written");
    }
}
