//! Command line tool of Mangrove.
mod codec;
mod failure;
fn main() {}
