//! What tests are made with: a storage that fails and loses power, and the entry points of the fuzz targets. Not part of the interface.

pub mod fuzzing;
pub mod sim;
