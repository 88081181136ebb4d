//! The shape of the nodes after many changes.

use super::keys::SLOTS;
use super::*;

/// Checks a node and returns its height and number of entries.
fn check(node: &Node<u32>, lower: Option<&[u8]>, upper: Option<&[u8]>, min: usize) -> (usize, usize) {
    let keys = node.keys.as_slice();
    assert!((min..SLOTS).contains(&keys.len()), "{} keys", keys.len());
    assert!(keys.is_sorted_by(|a, b| **a < **b));
    assert!(keys.iter().all(|key| lower.is_none_or(|lower| lower <= key)));
    assert!(keys.iter().all(|key| upper.is_none_or(|upper| &**key < upper)));
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(node.keys.search(key), Ok(index));
    }
    let children = match &node.content {
        Content::Values(values) => {
            assert_eq!(values.len(), keys.len());
            return (0, values.len());
        }
        Content::Children(children) => children,
    };
    assert_eq!(children.nodes.len(), keys.len() + 1);
    let mut heights = Vec::new();
    for (index, child) in children.nodes.iter().enumerate() {
        let lower = index.checked_sub(1).map_or(lower, |index| Some(&*keys[index]));
        let upper = keys.get(index).map_or(upper, |key| Some(&**key));
        let (height, count) = check(child, lower, upper, SLOTS / 8 - 1);
        assert_eq!(count, children.counts[index]);
        heights.push(height);
    }
    assert!(heights.iter().all(|height| *height == heights[0]));
    (heights[0] + 1, children.counts.iter().sum())
}

fn check_tree(tree: &BTree<u32>) -> usize {
    let root = tree.root.as_ref().unwrap();
    let (height, count) = check(root, None, None, 1);
    assert_eq!(count, tree.len());
    height
}

#[test]
fn nodes_stay_filled_and_balanced() {
    let count: u32 = if cfg!(miri) { 300 } else { 40_000 };
    for step in [1, 7_919, count - 1] {
        let mut tree = BTree::default();
        let key = |number: u32| (u64::from(number) * u64::from(step) % u64::from(count)).to_be_bytes();
        for number in 0..count {
            tree.insert(&key(number), number);
            if number % (count / 10) == 0 {
                check_tree(&tree);
            }
        }
        assert_eq!(check_tree(&tree), if cfg!(miri) { 1 } else { 2 });
        let snapshot = tree.clone();
        for number in 0..count {
            if number % (count / 10) == 0 {
                check_tree(&tree);
            }

            tree.remove(&key(number));
        }
        assert!(tree.root.is_none());
        check_tree(&snapshot);
    }
}
