//! Test support: a storage that fails and loses power, a shadow that checks each write, the entry
//! points of the fuzz targets, and the steps of a cold read for benchmarks. Not part of the public
//! interface.

pub mod events;
pub mod fuzzing;
mod indexes;
pub mod shadow;
pub mod sim;
pub mod stages;

pub use indexes::{IndexDamage, damage_index};
