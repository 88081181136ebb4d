//! Tests of the command line tool, in one program.

mod common;

mod backup;
mod beside_writer;
mod compact;
mod encryption;
mod failures;
mod indexes;
mod javascript;
mod permissions;
mod reading;
mod recover;
mod verbs;
