//! Explores a model of the protocol between commits, merges, checkpoints, the log and recovery:
//! every order of its steps, and at each of them every death, up to some commits and lives.
//!
//! The model repeats what the engine decides, under the engine's names, and nothing else: a tree is
//! one node, a half of the log a few records, a file a few extents. In each state no recovery that
//! may come next needs an extent that is free, and each recovery ends in a committed state that is
//! no older than what was acknowledged.
//!
//! The rules that this depends on are switches, so that the model also shows what each is for.

#![allow(clippy::print_stdout, reason = "the number of states is a result")]

mod disk;
mod search;
mod state;
mod writer;

use disk::KEYS;
use search::{Found, explore};

/// When an opening frees what only the superblock before the recovered one reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    /// When a record names an extent that is not free.
    OnDemand,
    /// At the start of a recovery from the older superblock.
    FromOlder,
    /// At the start, unless that superblock is there and reaches something else.
    Unneeded,
}

/// Rules of the protocol.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent")]
struct Rules {
    /// A value that a merge replaces and whose commit is behind the last whole checkpoint stays
    /// until the next whole one: the log behind every partial one names it.
    keeps_named: bool,
    /// Replay adds the hint of a record that expires, even if the tree has the record already.
    adds_hints: bool,
    /// A partial checkpoint states the version that its log has to reach.
    states_reach: bool,
    /// The older superblock has to lead as far as the newest states.
    older_reaches: bool,
    release: Release,
    /// A superblock without the flag "closed" proves that the log was begun.
    proves_log: bool,
    /// Without that log the older superblock, which may have the flag, is not tried either.
    refuses_outright: bool,
    /// The header of the log's first half is flushed before a superblock without the flag is
    /// written.
    begins_half_first: bool,
    /// Opening flushes the files before it writes anything: what it read may be in memory only.
    flushes_at_open: bool,
    /// A whole checkpoint flushes the log, too, as a partial one does.
    flushes_log: bool,
    /// A half ends where the other one continues it, even if a record that lost its blocks follows.
    ends_at_switch: bool,
}

const RULES: Rules = Rules {
    keeps_named: true,
    adds_hints: true,
    states_reach: true,
    older_reaches: true,
    release: Release::Unneeded,
    proves_log: true,
    refuses_outright: true,
    begins_half_first: true,
    flushes_at_open: true,
    flushes_log: true,
    ends_at_switch: true,
};

/// The changes of a commit.
struct Changes {
    /// Keys, and whether their values are out of line.
    puts: &'static [(usize, bool)],
    removes: &'static [usize],
    /// The collection that is emptied.
    clears: Option<usize>,
    /// The key whose record expires.
    expires: Option<usize>,
}

const NOTHING: Changes = Changes {
    puts: &[],
    removes: &[],
    clears: None,
    expires: None,
};

/// What a search covers.
struct Config {
    name: &'static str,
    /// Collection of each key. The last key is the hint of all records that expire.
    collections: [usize; KEYS],
    /// Collections that exist from the start.
    exists: u8,
    /// Keys with records from the start, and whether their values are out of line.
    initial: &'static [(usize, bool)],
    /// What a commit may do.
    kinds: &'static [Changes],
    commits: u8,
    /// One less than the number of lives. A life ends with a close, too.
    deaths: u8,
    extents: u8,
    /// A half with so many records makes the log switch.
    switch_at: u8,
    /// The older superblock is overwritten, there are closes, and commits that bypass the log.
    has_other_steps: bool,
    /// The files may be damaged, once, at a death.
    has_damage: bool,
}

const FIRST: usize = 0;
const SECOND: usize = 1;
const HINTS: usize = 2;

const MERGE: Config = Config {
    name: "merge",
    collections: [FIRST, FIRST, FIRST, SECOND, HINTS],
    exists: 1 << FIRST,
    initial: &[(0, true), (1, false)],
    kinds: &[
        Changes {
            puts: &[(0, true)],
            ..NOTHING
        },
        Changes {
            puts: &[(0, true), (1, false), (2, false)],
            ..NOTHING
        },
    ],
    commits: 3,
    deaths: 2,
    extents: 10,
    switch_at: u8::MAX,
    has_other_steps: false,
    has_damage: false,
};

/// Emptying the second collection thaws the first one.
const CLEAR: Config = Config {
    name: "clear",
    exists: 1 << FIRST | 1 << SECOND,
    initial: &[(0, true), (3, true)],
    kinds: &[
        Changes {
            puts: &[(0, true), (1, false), (2, false), (3, true)],
            ..NOTHING
        },
        Changes {
            clears: Some(SECOND),
            ..NOTHING
        },
    ],
    deaths: 1,
    extents: 14,
    ..MERGE
};

/// The first collection, of which a partial checkpoint may hold a part, is emptied before the second
/// one is merged in parts.
const CLEAR_FIRST: Config = Config {
    name: "clear first",
    collections: [FIRST, FIRST, SECOND, SECOND, HINTS],
    initial: &[(0, true), (2, true)],
    kinds: &[
        Changes {
            puts: &[(0, true), (1, false), (2, true), (3, false)],
            ..NOTHING
        },
        Changes {
            clears: Some(FIRST),
            ..NOTHING
        },
        Changes {
            removes: &[0, 2],
            ..NOTHING
        },
    ],
    ..CLEAR
};

const EXPIRY: Config = Config {
    name: "expiry",
    kinds: &[
        Changes {
            puts: &[(0, true), (1, true)],
            expires: Some(0),
            ..NOTHING
        },
        Changes {
            puts: &[(1, true)],
            ..NOTHING
        },
    ],
    commits: 2,
    ..MERGE
};

const LOG: Config = Config {
    name: "log",
    kinds: &[Changes {
        puts: &[(0, true), (1, false)],
        ..NOTHING
    }],
    commits: 2,
    switch_at: 1,
    has_other_steps: true,
    ..MERGE
};

const DAMAGE: Config = Config {
    name: "damage",
    has_damage: true,
    ..LOG
};

/// The log returns to its first half.
const SWITCH: Config = Config {
    name: "switch",
    commits: 3,
    deaths: 1,
    has_other_steps: false,
    ..DAMAGE
};

const CONFIGS: [Config; 7] = [MERGE, CLEAR, CLEAR_FIRST, EXPIRY, LOG, DAMAGE, SWITCH];

impl Config {
    fn keys(&self, collection: usize) -> impl Iterator<Item = usize> + '_ {
        (0..KEYS).filter(move |&key| self.collections[key] == collection)
    }
}

/// Shows that nothing goes wrong.
fn assert_right(config: &Config) {
    let Found {
        states,
        depth,
        violation,
    } = explore(config, &RULES);
    if let Some((violation, trace)) = violation {
        panic!("{}: {violation} after {trace:#?}", config.name);
    }
    println!(
        "{}: {states} states, none wrong, the last after {depth} steps",
        config.name
    );
}

#[test]
fn no_recovery_goes_wrong() {
    for config in &CONFIGS {
        assert_right(config);
    }
}

#[test]
#[ignore = "takes minutes and gigabytes"]
fn no_recovery_goes_wrong_in_longer_lives() {
    for config in CONFIGS {
        assert_right(&Config {
            commits: 3,
            deaths: if config.has_other_steps { 1 } else { 2 },
            ..config
        });
    }
}

const FREE: &str = "an extent that a recovery needs is free";
const BOTH: &str = "an extent is in use, and free now or later";
const HALF: &str = "the state is not a committed one";
const OLDER: &str = "the state is older than what was acknowledged";
const REFUSED: &str = "an intact database is refused";

/// Shows what goes wrong with a change of the rules.
fn assert_wrong(config: &Config, change: fn(&mut Rules), expected: &str) {
    let mut rules = RULES;
    change(&mut rules);
    let (violation, trace) = explore(config, &rules).violation.expect("the rule is needed");
    println!("{violation} after {} steps: {trace:?}", trace.len());
    assert_eq!(violation, expected);
}

#[test]
fn values_that_a_log_names_stay() {
    let one_life = Config { deaths: 0, ..CLEAR };
    assert_wrong(&MERGE, |rules| rules.keeps_named = false, FREE);
    assert_wrong(&one_life, |rules| rules.keeps_named = false, FREE);
}

#[test]
fn merged_records_get_their_hints() {
    assert_wrong(&EXPIRY, |rules| rules.adds_hints = false, HALF);
}

#[test]
fn a_partial_checkpoint_needs_its_log() {
    assert_wrong(&DAMAGE, |rules| rules.states_reach = false, HALF);
    assert_wrong(&DAMAGE, |rules| rules.older_reaches = false, OLDER);
}

#[test]
fn opening_frees_what_no_superblock_reaches() {
    let damaged = Config {
        has_damage: true,
        ..MERGE
    };
    assert_wrong(&MERGE, |rules| rules.release = Release::OnDemand, FREE);
    // An older superblock that was overwritten, and one that was destroyed.
    assert_wrong(&LOG, |rules| rules.release = Release::FromOlder, BOTH);
    assert_wrong(&damaged, |rules| rules.release = Release::FromOlder, BOTH);
}

#[test]
fn a_log_that_was_begun_is_missed() {
    assert_wrong(&DAMAGE, |rules| rules.proves_log = false, OLDER);
    assert_wrong(&DAMAGE, |rules| rules.refuses_outright = false, OLDER);
    assert_wrong(&LOG, |rules| rules.begins_half_first = false, REFUSED);
}

#[test]
fn opening_flushes_what_it_read() {
    assert_wrong(&LOG, |rules| rules.flushes_at_open = false, OLDER);
}

#[test]
fn a_whole_checkpoint_flushes_its_log() {
    // Of the half that its superblock names, the header may be lost.
    assert_wrong(&LOG, |rules| rules.flushes_log = false, REFUSED);
    let damaged = Config {
        has_damage: true,
        ..MERGE
    };
    assert_wrong(&damaged, |rules| rules.flushes_log = false, OLDER);
}

#[test]
fn a_half_ends_where_the_other_one_continues_it() {
    let longer = Config { commits: 3, ..LOG };
    assert_wrong(&longer, |rules| rules.ends_at_switch = false, REFUSED);
}
