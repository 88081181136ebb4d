//! Iterators over the records that cursors pass.

use std::iter::FusedIterator;

use crate::error::Result;

/// A cursor that copies the records that it passes.
pub trait Steps {
    /// Key and value of the next record; `None` at the end.
    fn step(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>>;
}

/// Copies of the keys and values that a cursor passes, up to the first error.
pub struct CursorRecords<C> {
    cursor: Option<C>,
}

impl<C> CursorRecords<C> {
    pub(crate) fn new(cursor: C) -> Self {
        Self { cursor: Some(cursor) }
    }
}

impl<C: Steps> Iterator for CursorRecords<C> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.cursor.as_mut()?.step();
        if !matches!(step, Ok(Some(_))) {
            self.cursor = None;
        }
        step.transpose()
    }
}

impl<C: Steps> FusedIterator for CursorRecords<C> {}
