//! Point reads, positions and counts, each in one descent.

use std::sync::Arc;

use super::Pages;
use crate::error::Result;
use crate::node::{Child, Node};
use crate::pages::Access;

/// A record in its leaf.
pub(crate) struct Found {
    pub leaf: Arc<Node>,
    pub index: usize,
}

/// The record with exactly this key.
pub(crate) fn find(pages: &impl Pages, root: Option<&Child>, owner: u32, key: &[u8]) -> Result<Option<Found>> {
    let Some(root) = root else { return Ok(None) };
    find_below(pages, &pages.root(root, owner)?, owner, key)
}

/// The record with exactly this key, for callers that have the root.
pub(crate) fn find_below(pages: &impl Pages, root: &Arc<Node>, owner: u32, key: &[u8]) -> Result<Option<Found>> {
    let mut held = None;
    loop {
        let node = held.as_ref().unwrap_or(root);
        if node.is_leaf() {
            break;
        }
        held = Some(pages.child(node, node.child_index(key), owner, Access::Point)?);
    }
    let leaf = held.unwrap_or_else(|| Arc::clone(root));
    let (index, found) = leaf.lower_bound(key);
    Ok(found.then_some(Found { leaf, index }))
}

/// Number of keys below `key`, and whether `key` itself exists.
pub(crate) fn rank(pages: &impl Pages, root: Option<&Child>, owner: u32, key: &[u8]) -> Result<(u64, bool)> {
    let Some(root) = root else { return Ok((0, false)) };
    let mut node = pages.root(root, owner)?;
    let mut below = 0;
    while !node.is_leaf() {
        let index = node.child_index(key);
        below += node.count_children(0, index);
        node = pages.child(&node, index, owner, Access::Point)?;
    }
    let (index, found) = node.lower_bound(key);
    Ok((below + index as u64, found))
}

/// The record at position `index` in key order.
pub(crate) fn at(pages: &impl Pages, root: Option<&Child>, owner: u32, mut index: u64) -> Result<Option<Found>> {
    let Some(root) = root.filter(|root| index < root.count) else {
        return Ok(None);
    };
    let mut node = pages.root(root, owner)?;
    while !node.is_leaf() {
        let (child, rest) = child_at(&node, index);
        index = rest;
        node = pages.child(&node, child, owner, Access::Point)?;
    }
    let index = index as usize;
    Ok((index < node.len()).then_some(Found { leaf: node, index }))
}

/// The child of an inner node that holds record number `index`, and the record's number within that
/// child.
pub(crate) fn child_at(node: &Node, mut index: u64) -> (usize, u64) {
    let last = node.len() - 1;
    for child in 0..last {
        let count = node.child_count(child);
        if index < count {
            return (child, index);
        }
        index -= count;
    }
    (last, index)
}
