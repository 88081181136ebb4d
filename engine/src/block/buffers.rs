//! Reusable buffers of evicted pages and processed blocks, for the next reads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of buffers in the pool.
const MAX_BUFFERS: usize = 16;
/// Longer buffers are not pooled.
const MAX_BYTES: usize = 64 << 10;

/// A small buffer pool. A taken buffer holds stale bytes, so its user must overwrite all of it.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a buffer of `len` bytes. Its capacity is not much larger, since a page keeps the
    /// buffer it was read into.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut buffers = self.lock();
        let fits = |buffer: &Vec<u8>| (len..=len + len / 4).contains(&buffer.capacity());
        let mut buffer = match buffers.iter().rposition(fits) {
            Some(at) => buffers.swap_remove(at),
            None => Vec::with_capacity(len),
        };
        drop(buffers);
        buffer.resize(len, 0);
        buffer
    }

    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        if buffer.capacity() > MAX_BYTES {
            return;
        }
        let mut buffers = self.lock();
        if buffers.len() == MAX_BUFFERS {
            // As a rule, this is the buffer whose length was requested least recently.
            buffers.remove(0);
        }
        buffers.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_where_they_fit() {
        let buffers = Buffers::default();
        buffers.give_back(vec![7; 1000]);
        assert_eq!(buffers.take(700), [0; 700], "it would waste memory");
        assert_eq!(buffers.take(1001), [0; 1001]);
        let again = buffers.take(900);
        assert_eq!((again.len(), again.capacity()), (900, 1000));
        buffers.give_back(vec![7; MAX_BYTES + 1]);
        assert!(buffers.lock().is_empty());
        for len in 1..=MAX_BUFFERS + 3 {
            buffers.give_back(vec![0; len]);
        }
        assert_eq!(buffers.lock().len(), MAX_BUFFERS);
        assert_eq!(buffers.lock()[0].len(), 4);
    }
}
