//! Integration tests that need no separate process, in one program: linking a program for each
//! file takes longer than running it.

mod common;

mod backup;
mod clear;
mod clients;
mod compact;
mod corruption;
mod damaged_logs;
mod damaged_tails;
mod determinism;
mod durability;
mod encryption;
mod faults;
mod feed;
mod fence;
mod files;
mod forged;
mod format_tables;
mod full;
mod full_log;
mod fuzz_regressions;
mod golden;
mod idle;
mod indexes;
mod layers;
mod layout;
mod model;
mod open_flush;
mod optimistic;
mod partial;
mod records;
mod recover;
mod reencryption;
mod removed_runs;
mod reopened;
mod replay;
mod shadow;
mod space;
mod threads;
mod values;
mod verification;
