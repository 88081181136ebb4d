//! Tests of the command line tool, in one program.

mod common;

mod backup;
mod beside_writer;
mod compact;
mod encryption;
mod exported;
mod failures;
mod indexes;
mod permissions;
mod reading;
mod recover;
mod verbs;
