//! Compares memory by eight bytes at a time.
//!
//! The compiler's own `memcmp` for WebAssembly compares byte by byte, which took more time
//! than any other function of the engine: a search compares keys that begin alike. LLVM turns comparisons
//! of slices into calls of this symbol; the compiler's is weak, so this one replaces it.

#![allow(unsafe_code, reason = "the symbol has C's signature")]

const WORD: usize = size_of::<u64>();

/// As C's `memcmp`.
///
/// # Safety
/// `count` bytes can be read at both addresses.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    let mut at = 0;
    while at + WORD <= count {
        // SAFETY: both words end within the bytes that can be read.
        let (a, b) = unsafe {
            (
                one.add(at).cast::<u64>().read_unaligned(),
                other.add(at).cast::<u64>().read_unaligned(),
            )
        };
        if a != b {
            return if a.swap_bytes() < b.swap_bytes() { -1 } else { 1 };
        }
        at += WORD;
    }
    while at < count {
        // SAFETY: `at` is less than `count`.
        let (a, b) = unsafe { (one.add(at).read(), other.add(at).read()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
        at += 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_orders_bytes_as_slices_do() {
        let mut bytes = Vec::new();
        for len in 0..20 {
            for at in 0..=len {
                for byte in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut text = vec![0x80; len];
                    if let Some(place) = text.get_mut(at) {
                        *place = byte;
                    }
                    bytes.push(text);
                }
            }
        }
        for one in &bytes {
            for other in bytes.iter().filter(|other| other.len() == one.len()) {
                // SAFETY: both have as many bytes.
                let order = unsafe { memcmp(one.as_ptr(), other.as_ptr(), one.len()) };
                assert_eq!(order.cmp(&0), one.cmp(other), "{one:?} and {other:?}");
            }
        }
    }
}
