//! Breadth-first search over all states.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::disk::Fingerprint;
use super::state::{State, Step, Violation};
use super::{Config, Rules};

/// What a search found.
pub(super) struct Found {
    pub states: usize,
    /// Steps to the last state.
    pub depth: usize,
    /// The shortest way to a violation.
    pub violation: Option<(Violation, Vec<Step>)>,
}

/// A hash as it is: the states' fingerprints are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are words");
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = Fingerprint::default();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Visits every state once, in the order of their distance from the first, up to a violation.
/// Only the states of one distance are kept; of the others, fingerprints and the steps to them.
pub(super) fn explore(config: &Config, rules: &Rules) -> Found {
    let first = State::new(config, rules);
    let mut seen: HashSet<u64, BuildHasherDefault<Identity>> = HashSet::default();
    seen.insert(fingerprint(&first));
    // How each state was reached: from which, by what.
    let mut ways: Vec<(u32, Step)> = vec![(0, Step::Flush)];
    let mut level = vec![(first, 0_u32)];
    let mut depth = 0;
    loop {
        let mut next = Vec::new();
        for (state, at) in &level {
            for step in state.steps(config) {
                match state.after(config, rules, step) {
                    Ok(None) => {}
                    Ok(Some(after)) => {
                        if seen.insert(fingerprint(&after)) {
                            next.push((after, ways.len() as u32));
                            ways.push((*at, step));
                        }
                    }
                    Err(violation) => {
                        let mut trace = vec![step];
                        let mut at = *at;
                        while at != 0 {
                            let (before, step) = ways[at as usize];
                            trace.push(step);
                            at = before;
                        }
                        trace.reverse();
                        return Found {
                            states: ways.len(),
                            depth: trace.len(),
                            violation: Some((violation, trace)),
                        };
                    }
                }
            }
        }
        if next.is_empty() {
            return Found {
                states: ways.len(),
                depth,
                violation: None,
            };
        }
        level = next;
        depth += 1;
    }
}
