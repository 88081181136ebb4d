//! The free map: the free units, written by each checkpoint into a block of its own.
//!
//! ```text
//! varint number of extents, then per extent varint gap since the end of the one before, varint units   -- free
//! the same again                                      -- still used by the checkpoint before this one
//! ```
//! No other unreachable units exist: the two lists, the blocks reachable from the superblock and
//! the free map's own block add up to the file (invariant I8).

use super::extents::Extent;
use crate::error::{Error, Result};
use crate::node::cell::{get_varint, put_varint};

/// Maximum growth of an encoding when the front of one free extent is taken, in bytes: its gap, the
/// next extent's gap and the count of one more extent take at most 7 bytes each.
pub(crate) const MAX_GROWTH: usize = 24;

/// Encodes two sorted lists.
pub(crate) fn encode(free: &[Extent], quarantined: &[Extent]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for list in [free, quarantined] {
        put_varint(&mut bytes, list.len() as u64);
        let mut end = 0;
        for extent in list {
            put_varint(&mut bytes, extent.start - end);
            put_varint(&mut bytes, extent.units);
            end = extent.start + extent.units;
        }
    }
    bytes
}

/// Decodes both lists. Every extent lies within `first_unit..file_units`; none overlap within a
/// list.
pub(crate) fn decode(bytes: &[u8], first_unit: u64, file_units: u64) -> Result<(Vec<Extent>, Vec<Extent>)> {
    let mut at = 0;
    let free = decode_list(bytes, &mut at, first_unit, file_units).ok_or_else(malformed)?;
    let quarantined = decode_list(bytes, &mut at, first_unit, file_units).ok_or_else(malformed)?;
    if at != bytes.len() {
        return Err(malformed());
    }
    Ok((free, quarantined))
}

fn malformed() -> Error {
    Error::corrupt("the free map is malformed")
}

fn decode_list(bytes: &[u8], at: &mut usize, first_unit: u64, file_units: u64) -> Option<Vec<Extent>> {
    let mut next = || {
        let (value, len) = get_varint(bytes.get(*at..)?)?;
        *at += len;
        Some(value)
    };
    let count = next()?;
    let mut list = Vec::new();
    let mut end = 0_u64;
    for _ in 0..count {
        let start = end.checked_add(next()?)?;
        let units = next()?;
        end = start.checked_add(units)?;
        if start < first_unit || units == 0 || end > file_units {
            return None;
        }
        list.push(Extent { start, units });
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_round_trip_with_golden_bytes() {
        let free = [Extent { start: 2, units: 3 }, Extent { start: 300, units: 1 }];
        let kept = [Extent { start: 9, units: 2 }];
        let bytes = encode(&free, &kept);
        assert_eq!(bytes, [2, 2, 3, 0xA7, 2, 1, 1, 9, 2]);
        assert_eq!(decode(&bytes, 2, 301).unwrap(), (free.to_vec(), kept.to_vec()));
        assert!(decode(&bytes, 2, 300).is_err());
        assert!(decode(&bytes, 3, 301).is_err());
    }

    #[test]
    fn bytes_behind_the_lists_are_refused() {
        let mut bytes = encode(&[Extent { start: 2, units: 3 }], &[]);
        assert!(decode(&bytes, 2, 301).is_ok());
        bytes.push(0);
        assert!(decode(&bytes, 2, 301).is_err());
    }

    #[test]
    fn taking_the_front_of_an_extent_grows_the_list_by_little() {
        let list = |first: u64, units: u64| {
            encode(
                &[
                    Extent { start: first, units },
                    Extent {
                        start: 1 << 47,
                        units: 1,
                    },
                ],
                &[],
            )
            .len()
        };
        let whole = encode(
            &[Extent {
                start: 2,
                units: (1 << 47) - 2,
            }],
            &[],
        )
        .len();
        for taken in [1, 100, 1 << 20, (1 << 47) - 4] {
            assert!(list(2 + taken, (1 << 47) - 3 - taken) <= whole + MAX_GROWTH);
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes, 2, 1000);
        }
    }
}
