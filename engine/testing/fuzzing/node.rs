//! Pages: for any bytes that pass validation, every access is in bounds and every search is right.

use std::ops::Bound;

use arbitrary::{Arbitrary, Unstructured};

use super::{UNIT_BYTES, memory_file};
use crate::block::{self, BlockFile, BlockInfo, BlockRef, Compression, Kind};
use crate::node::{Child, LeafCell, Limits, Node, ValuePlace};
use crate::pages::Pager;
use crate::range::{Direction, KeyRange};
use crate::tree::cursor::TreeCursor;

const CAPACITY: usize = 1024;
/// Unit of the page's block in its file.
const UNIT: usize = 16;

/// A page built cell by cell and then damaged. Raw bytes alone rarely pass the check that the
/// heap's lengths add up.
struct Recipe<'a> {
    level: u8,
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
    has_overflow: bool,
    damage: Vec<(u16, u8)>,
    cells: Vec<RecipeCell<'a>>,
}

struct RecipeCell<'a> {
    key: &'a [u8],
    value: &'a [u8],
    reference: [u8; 16],
    count: u64,
    is_out_of_line: bool,
}

fn short<'a>(u: &mut Unstructured<'a>) -> arbitrary::Result<&'a [u8]> {
    let len = u.int_in_range(0..=24)?;
    u.bytes(len.min(u.len()))
}

impl<'a> Arbitrary<'a> for Recipe<'a> {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let mut recipe = Self {
            level: *u.choose(&[0, 0, 0, 1, 1, 2, 63, 64, 255])?,
            lower: short(u)?,
            upper: if u.arbitrary()? { Some(short(u)?) } else { None },
            has_overflow: u.arbitrary()?,
            damage: Vec::new(),
            cells: Vec::new(),
        };
        for _ in 0..u.int_in_range(0..=3)? {
            recipe.damage.push(u.arbitrary()?);
        }
        while !u.is_empty() {
            recipe.cells.push(RecipeCell {
                key: short(u)?,
                value: short(u)?,
                reference: u.arbitrary()?,
                count: u.arbitrary()?,
                is_out_of_line: u.arbitrary()?,
            });
        }
        Ok(recipe)
    }
}

impl Recipe<'_> {
    fn image(&self) -> Vec<u8> {
        let lower = &self.lower[..self.lower.len().min(100)];
        let upper = self.upper.map(|upper| &upper[..upper.len().min(100)]);
        let upper = upper.filter(|upper| *upper > lower);
        let mut node = Node::new(CAPACITY, self.level, lower, upper);
        if self.has_overflow {
            node.mark_overflow();
        }
        let prefix = node.prefix().to_vec();
        let mut cells: Vec<(Vec<u8>, &RecipeCell<'_>)> = self
            .cells
            .iter()
            .map(|cell| ([&prefix, cell.key].concat(), cell))
            .collect();
        cells.sort_by(|a, b| a.0.cmp(&b.0));
        cells.dedup_by(|a, b| a.0 == b.0);
        cells.retain(|(key, _)| key.as_slice() >= lower && upper.is_none_or(|upper| key.as_slice() < upper));
        for (key, cell) in cells {
            if !node.insert(node.len(), &key, &cell.payload(self.level)) {
                break;
            }
        }
        let (front, heap) = node.image();
        let mut image = [front, heap].concat();
        for (at, byte) in &self.damage {
            let at = usize::from(*at) % image.len();
            image[at] = *byte;
        }
        image
    }
}

impl RecipeCell<'_> {
    fn payload(&self, level: u8) -> Vec<u8> {
        let reference = BlockRef::decode(&self.reference);
        if level > 0 {
            // Without a valid reference, use one that no file has.
            let none = BlockRef {
                unit: u64::from(u32::MAX),
                units: 1,
                checksum: 0,
                raw_len: 0,
            };
            let child = Child {
                pointer: reference.unwrap_or(none),
                count: self.count >> 8,
                has_overflow: self.is_out_of_line,
            };
            return child.encode().to_vec();
        }
        let mut payload = Vec::new();
        let place = match reference {
            Some(reference) if self.is_out_of_line => ValuePlace::OutOfLine(reference),
            _ => ValuePlace::Inline(self.value),
        };
        let value_len = self.value.len();
        LeafCell::new(value_len, place).encode_into(&mut payload);
        payload
    }
}

/// Input: one byte that selects a page or a recipe for one, a length and that many bytes to search
/// for, then the page or recipe.
pub fn node(bytes: &[u8]) -> bool {
    let [selector, probe_len, rest @ ..] = bytes else {
        return false;
    };
    let (probe, rest) = rest.split_at(usize::from(*probe_len).min(rest.len()));
    let image = if selector & 1 == 0 {
        rest.to_vec()
    } else if let Ok(recipe) = Recipe::arbitrary(&mut Unstructured::new(rest)) {
        recipe.image()
    } else {
        return false;
    };
    let node = Node::from_image(image);
    if node.validate(&Limits::NONE).is_err() {
        return false;
    }
    assert!(node.level() < u8::MAX);
    let prefix = node.prefix().to_vec();
    for key in [probe, &[&prefix, probe].concat()] {
        search(&node, key);
    }
    if node.is_leaf() {
        edit(&node, &[&prefix, probe].concat());
    }
    if node.lower_fence().is_empty() && node.upper_fence().is_none() {
        cursors(&node, probe);
    }
    true
}

fn covers(node: &Node, key: &[u8]) -> bool {
    key >= node.lower_fence() && node.upper_fence().is_none_or(|upper| key < upper)
}

fn search(node: &Node, probe: &[u8]) {
    let keys: Vec<Vec<u8>> = (0..node.len()).map(|index| node.key(index)).collect();
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    let mut total = 0;
    for (index, key) in keys.iter().enumerate() {
        assert!(covers(node, key));
        if node.is_leaf() {
            assert_eq!(node.lower_bound(key), (index, true));
            let record = node.record(index);
            if let ValuePlace::Inline(value) = record.place {
                assert_eq!(value.len(), record.value_len);
            }
            total += 1;
        } else {
            assert_eq!(node.child_index(key), index);
            let (lower, upper) = node.child_fences(index);
            assert!(lower == *key && upper.is_none_or(|upper| upper > lower));
            assert!(node.child(index).pointer.unit > 0);
            total += node.child(index).count;
        }
    }
    assert_eq!(node.total(), total);
    if !covers(node, probe) {
        return;
    }
    let below = keys.iter().filter(|key| key.as_slice() < probe).count();
    let found = keys.iter().any(|key| key == probe);
    if node.is_leaf() {
        assert_eq!(node.lower_bound(probe), (below, found));
    } else {
        assert_eq!(node.child_index(probe), (below + usize::from(found)).max(1) - 1);
    }
}

/// Checks that a page from storage can be changed like a page built here.
fn edit(node: &Node, key: &[u8]) {
    let mut copy = node.writable_copy(CAPACITY);
    assert_eq!(copy.image(), node.image());
    let expect_valid = |node: &Node| {
        let (front, heap) = node.image();
        assert_eq!(Node::from_image([front, heap].concat()).validate(&Limits::NONE), Ok(()));
    };
    let mut payload = Vec::new();
    LeafCell::inline(&[7; 40]).encode_into(&mut payload);
    if covers(node, key) && u16::try_from(key.len()).is_ok() {
        let (index, found) = copy.lower_bound(key);
        let fits = if found {
            copy.replace_payload(index, &payload)
        } else {
            copy.insert(index, key, &payload)
        };
        expect_valid(&copy);
        if fits {
            assert_eq!(copy.lower_bound(key), (index, true));
            assert_eq!(copy.payload(index), payload);
        }
    }
}

/// Runs cursors over the page as the only one of a tree; children of an inner page are missing.
fn cursors(node: &Node, probe: &[u8]) {
    let info = BlockInfo {
        kind: if node.is_leaf() { Kind::Leaf } else { Kind::Inner },
        level: node.level(),
        owner: 1,
        generation: 1,
    };
    let mut file = vec![0; UNIT * UNIT_BYTES];
    let (front, heap) = node.image();
    let mut reference = block::encode(info, &[front, heap], Compression::None, UNIT_BYTES, &mut file);
    reference.unit = UNIT as u64;
    let root = node.as_child(reference);
    let pager = Pager::new(
        BlockFile::new(memory_file(&file), UNIT_BYTES.ilog2()),
        Limits::new(65536),
        64 << 10,
    );
    for direction in [Direction::Forward, Direction::Reverse] {
        let walk = |range: &KeyRange<'_>, seek: Option<&[u8]>, skip: u64| {
            let mut cursor = TreeCursor::new(Some(root), 1, range, direction);
            if let Some(key) = seek {
                cursor.seek(&pager, key)?;
            }
            cursor.skip(&pager, skip)?;
            let mut keys = Vec::new();
            while cursor.advance(&pager)? {
                keys.push(cursor.key().to_vec());
            }
            Ok::<_, crate::Error>(keys)
        };
        let all = walk(&KeyRange::all(), None, 0);
        let skipped = walk(&KeyRange::all(), None, 1 + u64::from(root.count > 3));
        let sought = walk(&KeyRange::all(), Some(probe), 0);
        let range = KeyRange {
            lower: Bound::Excluded(probe),
            upper: Bound::Unbounded,
        };
        let above = walk(&range, None, 0);
        if !node.is_leaf() {
            assert!([all, skipped, sought, above].iter().all(|result| {
                result.as_ref().is_err_and(|error| error.code() == "KV_CORRUPT")
                    || result.as_ref().is_ok_and(Vec::is_empty)
            }));
            continue;
        }
        let mut keys: Vec<Vec<u8>> = (0..node.len()).map(|index| node.key(index)).collect();
        if direction == Direction::Reverse {
            keys.reverse();
        }
        let skip = 1 + usize::from(root.count > 3);
        assert_eq!(skipped.as_deref(), Ok(&keys[skip.min(keys.len())..]));
        assert_eq!(all.as_deref(), Ok(keys.as_slice()));
        let reached = |key: &Vec<u8>| match direction {
            Direction::Forward => key.as_slice() >= probe,
            Direction::Reverse => key.as_slice() <= probe,
        };
        assert_eq!(sought, Ok(keys.iter().filter(|key| reached(key)).cloned().collect()));
        keys.retain(|key| key.as_slice() > probe);
        assert_eq!(above, Ok(keys));
    }
}
