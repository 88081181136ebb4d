//! CRC32 (ISO-HDLC, polynomial 0x04C11DB7 reflected): the checksum of superblocks, log and backups.
//!
//! Native builds use the crate crc32fast and thereby the processor's instructions. In WebAssembly
//! that crate would add 16 KiB of incompressible constant tables, an eighth of what a browser
//! downloads, so there the tables are computed on first use.

#[cfg(not(target_family = "wasm"))]
pub(crate) use crc32fast::{Hasher, hash};

#[cfg(target_family = "wasm")]
pub(crate) use tables::{Hasher, hash};

#[cfg(any(test, target_family = "wasm"))]
mod tables {
    //! Processes 16 bytes at a time (after "slicing-by-8", Kounavis and Berry 2005).

    use std::sync::OnceLock;

    const POLYNOMIAL: u32 = 0xEDB8_8320;

    const STEP: usize = 16;

    type Tables = [[u32; 256]; STEP];

    /// Shared by all databases of the process.
    static TABLES: OnceLock<Box<Tables>> = OnceLock::new();

    fn make_tables() -> Box<Tables> {
        let mut tables = Box::new([[0; 256]; STEP]);
        for (index, entry) in tables[0].iter_mut().enumerate() {
            *entry = (0..8).fold(index as u32, |crc, _| {
                (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 }
            });
        }
        for table in 1..STEP {
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
            // Unrolled by hand: the compiler does not unroll loops over the tables.
            let four = |first: usize, word: [u8; 4]| {
                tables[first][usize::from(word[0])]
                    ^ tables[first - 1][usize::from(word[1])]
                    ^ tables[first - 2][usize::from(word[2])]
                    ^ tables[first - 3][usize::from(word[3])]
            };
            let (steps, rest) = bytes.as_chunks::<STEP>();
            for step in steps {
                let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3] = *step;
                let first = (u32::from_le_bytes([a0, a1, a2, a3]) ^ crc).to_le_bytes();
                crc = four(15, first)
                    ^ four(11, [b0, b1, b2, b3])
                    ^ four(7, [c0, c1, c2, c3])
                    ^ four(3, [d0, d1, d2, d3]);
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
    use crate::block::checksum::tables;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_is_right() {
        assert_eq!(super::hash(b"123456789"), 0xCBF4_3926);
        assert_eq!(tables::hash(b"123456789"), 0xCBF4_3926);
    }

    proptest! {
        /// Native and WebAssembly builds compute the same checksum, wherever the input is split.
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
