//! CRC32 (ISO-HDLC, polynomial 0x04C11DB7 reflected), the checksum of blocks and superblocks.
//!
//! Natively it is the crate crc32fast, which uses the processor's instructions. In WebAssembly that crate would bring 16 KiB of constant tables
//! that do not compress, an eighth of what a browser downloads; there the tables are made at first use.

#[cfg(not(target_family = "wasm"))]
pub(crate) use crc32fast::{Hasher, hash};

#[cfg(target_family = "wasm")]
pub(crate) use tables::{Hasher, hash};

#[cfg(any(test, target_family = "wasm"))]
mod tables {
    //! Eight bytes at a time ("slicing-by-8", Kounavis and Berry 2005).

    use std::sync::OnceLock;

    const POLYNOMIAL: u32 = 0xEDB8_8320;

    type Tables = [[u32; 256]; 8];

    /// The same in every database of the process.
    static TABLES: OnceLock<Box<Tables>> = OnceLock::new();

    fn make_tables() -> Box<Tables> {
        let mut tables = Box::new([[0; 256]; 8]);
        for (index, entry) in tables[0].iter_mut().enumerate() {
            *entry = (0..8).fold(index as u32, |crc, _| {
                (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 }
            });
        }
        for table in 1..8 {
            for index in 0..256 {
                let crc = tables[table - 1][index];
                tables[table][index] = (crc >> 8) ^ tables[0][(crc & 0xFF) as usize];
            }
        }
        tables
    }

    pub(crate) struct Hasher(u32);

    impl Hasher {
        pub(crate) fn new() -> Self {
            Self(!0)
        }

        pub(crate) fn update(&mut self, bytes: &[u8]) {
            let tables = &**TABLES.get_or_init(make_tables);
            let mut crc = self.0;
            let (words, rest) = bytes.as_chunks::<8>();
            for word in words {
                let mixed = u64::from_le_bytes(*word) ^ u64::from(crc);
                crc = 0;
                for (at, byte) in mixed.to_le_bytes().into_iter().enumerate() {
                    crc ^= tables[7 - at][usize::from(byte)];
                }
            }
            for byte in rest {
                crc = (crc >> 8) ^ tables[0][usize::from(crc as u8 ^ byte)];
            }
            self.0 = crc;
        }

        pub(crate) fn finalize(self) -> u32 {
            !self.0
        }
    }

    pub(crate) fn hash(bytes: &[u8]) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::tables;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_is_right() {
        assert_eq!(super::hash(b"123456789"), 0xCBF4_3926);
        assert_eq!(tables::hash(b"123456789"), 0xCBF4_3926);
    }

    proptest! {
        /// Native and WebAssembly builds write the same checksums, however the bytes are cut.
        #[test]
        fn both_implementations_agree(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0_usize..300) {
            let (front, back) = bytes.split_at(cut.min(bytes.len()));
            let mut own = tables::Hasher::new();
            own.update(front);
            own.update(back);
            prop_assert_eq!(own.finalize(), crc32fast::hash(&bytes));
        }
    }
}
