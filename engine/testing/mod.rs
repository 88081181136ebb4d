//! What tests are made with: a storage that fails and loses power, the entry points of the fuzz targets, and the steps of a cold read for
//! benchmarks. Not part of the interface.

pub mod fuzzing;
pub mod sim;
pub mod stages;
