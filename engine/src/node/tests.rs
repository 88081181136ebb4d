//! Checks a node against a sorted map, and the bytes of a known node.

use proptest::prelude::*;

use super::*;

fn payload(value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    LeafCell::inline(value).encode_into(&mut bytes);
    bytes
}

fn leaf(entries: &[(&[u8], &[u8])]) -> Node {
    let mut node = Node::new(1024, 0, b"", None);
    for (key, value) in entries {
        let (index, found) = node.lower_bound(key);
        assert!(!found);
        assert!(node.insert(index, key, &payload(value)));
    }
    node
}

#[test]
fn image_has_golden_bytes() {
    let mut node = Node::new(64, 0, b"ab", Some(b"ac"));
    assert!(node.insert(0, b"abX", &payload(b"v")));
    let (front, heap) = node.image();
    assert_eq!(
        front,
        [
            0, 1, 1, 0, 8, 0, 0, 0, 1, 0, 2, 0, 2, 0, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, // header
            8, 0, 2, 0, 0, 0, b'X', b'b', // slot: offset 8, suffix 2, head "bX\0\0"
        ]
    );
    assert_eq!(heap, [b'b', b'X', 16, b'v', b'a', b'c', b'a', b'b']);
}

/// In WebAssembly a length may exceed an address; its low half is another length.
#[test]
fn a_length_of_more_than_32_bits_is_not_cut() {
    let mut bytes = Vec::new();
    cell::put_varint(&mut bytes, (1 << 32 | 1) << 4);
    bytes.push(b'v');
    assert_eq!(cell::inline_value(&bytes), None);
    assert_eq!(cell::check_leaf_payload(&bytes), None);
}

#[test]
fn cells_have_golden_bytes() {
    let mut bytes = Vec::new();
    let cell = LeafCell {
        version: 300,
        expires: 5,
        index_keys: b"keys",
        ..LeafCell::inline(b"v")
    };
    cell.encode_into(&mut bytes);
    assert_eq!(bytes, b"\x1e\xac\x02\x05\x04keysv");
    assert_eq!(LeafCell::decode(&bytes), cell);
    assert_eq!(cell::inline_value(&bytes), Some((b"v".as_slice(), 5)));
    assert_eq!(cell::leaf_payload_len(&bytes), bytes.len());
    for len in 0..bytes.len() {
        assert_eq!(cell::check_leaf_payload(&bytes[..len]), None, "{len}");
    }
    assert_eq!(cell::check_leaf_payload(&bytes), Some((bytes.len(), false)));
}

#[test]
fn zero_padded_heads_do_not_confuse_keys() {
    let node = leaf(&[(b"a", b"1"), (b"a\0", b"2"), (b"", b"0"), (b"a\0\0\0\0", b"3")]);
    let keys: Vec<_> = (0..node.len()).map(|index| node.key(index)).collect();
    assert_eq!(keys, [&b""[..], b"a", b"a\0", b"a\0\0\0\0"]);
    assert_eq!(node.lower_bound(b"a\0\0"), (3, false));
}

#[test]
fn trimmed_images_read_back() {
    let node = leaf(&[(b"one", b"1"), (b"two", b"2")]);
    let (front, heap) = node.image();
    let read = Node::from_image([front, heap].concat());
    read.validate(&Limits::NONE).unwrap();
    assert_eq!(read.key(1), b"two");
    let mut copy = read.writable_copy(1024);
    assert!(copy.insert(2, b"x", &payload(&[9; 500])));
    copy.validate(&Limits::NONE).unwrap();
}

proptest! {
    /// Inserts and replacements keep the node equal to a sorted map and valid.
    #[test]
    fn node_behaves_like_a_sorted_map(ops in prop::collection::vec(
        (prop::collection::vec(0u8..4, 0..6), prop::collection::vec(any::<u8>(), 0..24)), 1..80)
    ) {
        let mut node = Node::new(512, 0, b"", None);
        let mut model = std::collections::BTreeMap::new();
        for (key, value) in ops {
            let (index, found) = node.lower_bound(&key);
            prop_assert_eq!(found, model.contains_key(&key));
            let stored = if found {
                node.replace_payload(index, &payload(&value))
            } else {
                node.insert(index, &key, &payload(&value))
            };
            if stored {
                model.insert(key, value);
            }
            prop_assert!(node.validate(&Limits::NONE).is_ok());
            prop_assert_eq!(node.len(), model.len());
        }
        for (index, (key, value)) in model.iter().enumerate() {
            prop_assert_eq!(&node.key(index), key);
            prop_assert_eq!(node.record(index), LeafCell::inline(value));
        }
    }

    /// Keys outside the fences have their place before or after all cells.
    #[test]
    fn any_key_has_its_place_in_a_leaf(
        suffixes in prop::collection::btree_set(prop::collection::vec(0_u8..4, 0..4), 0..12),
        sought in prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), 0_u8..4, Just(0xff)], 0..6),
    ) {
        let mut node = Node::new(1024, 0, b"ab", Some(b"ac"));
        let keys: Vec<Vec<u8>> = suffixes.iter().map(|suffix| [&b"ab"[..], suffix].concat()).collect();
        for (index, key) in keys.iter().enumerate() {
            prop_assert!(node.insert(index, key, &payload(b"")));
        }
        let expected = (keys.partition_point(|key| *key < sought), keys.contains(&sought));
        prop_assert_eq!(node.lower_bound_outside(&sought), expected);
    }

    /// Hostile bytes never cause a panic, neither in validation nor, if accepted, in the accessors.
    #[test]
    fn validation_makes_accessors_safe(mut bytes in prop::collection::vec(any::<u8>(), 0..200), small in any::<bool>()) {
        if small && bytes.len() > 24 {
            // Small counts and lengths get past the first checks.
            for at in [3, 5, 7, 9, 11, 13, 17, 19] { bytes[at] = 0; }
            bytes[2] %= 4;
        }
        let node = Node::from_image(bytes);
        if node.validate(&Limits::NONE).is_ok() {
            for index in 0..node.len() {
                let _ = (node.key(index), node.payload(index).len());
            }
        }
    }
}
