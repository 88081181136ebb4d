//! One record in one commit: changed in place where nobody can see the page before the change.
//!
//! A transaction copies the pages it changes, so that it can be undone and readers are not disturbed. When a single record is stored without
//! waiting for a flush, and no snapshot lives, neither is needed: everything that can fail, reading the path and writing the
//! log, comes first, and then the dirty pages of the newest version are changed where they are. A leaf that is clean is copied, once.

use std::sync::Arc;

use super::{CommitInfo, Durability};
use crate::block::{BlockRef, PageId, Pointer};
use crate::error::{Error, Result};
use crate::log::{Log, Operation};
use crate::node::{Child, LeafCell, Node, ValuePlace};
use crate::pages::{Access, Draft, Extent};
use crate::state::{Shared, Version, Writer};
use crate::tree::{Editor, Pages};

/// The way to a leaf through inner pages that are all in memory and dirty.
struct Path {
    /// Inner pages and the child that is taken in each.
    inner: Vec<(u64, usize)>,
    leaf: Leaf,
    index: usize,
    found: bool,
}

enum Leaf {
    /// A dirty page.
    Dirty(u64),
    /// A copy of a clean one, which is in this block.
    Copied(Node, BlockRef),
}

/// Stores a record in place, if that can be done; `None` if it takes a transaction. Nothing was done then.
pub(crate) fn set_in_place(
    shared: &Shared,
    writer: &mut Writer,
    collection: &str,
    key: &[u8],
    value: &[u8],
    durability: Durability,
) -> Result<Option<CommitInfo>> {
    if durability == Durability::Strict
        || shared.check_key(key).is_err()
        || !shared.config.limits.is_inline(key.len(), value.len())
        || shared.history().is_wanted()
        || shared.feed().is_wanted()
        || writer.admit(shared, 2 * shared.config.limits.node_capacity).is_err()
    {
        return Ok(None);
    }
    let version = {
        let published = shared.published();
        if !published.is_unwatched() {
            return Ok(None);
        }
        published.current.version + 1
    };
    let newest = shared.current();
    let Some(entry) = newest.collections.get(collection).filter(|_| !newest.has_hidden()) else {
        return Ok(None);
    };
    let (id, root) = (entry.id, entry.root);
    drop(newest);
    let cell = LeafCell {
        version,
        ..LeafCell::new(value.len(), ValuePlace::Inline(value))
    };
    let mut payload = std::mem::take(&mut writer.payload);
    cell.encode_into(&mut payload);
    let path = root.and_then(|root| find_path(shared, id, root, key, &payload, version));
    let dirty_before = shared.pager.dirty_bytes();
    let log_before = writer.log.as_ref().map_or(0, |log| log.bytes_written);
    let result = match path {
        Some(path) => {
            let logged = log_change(shared, writer, id, key, value, version, durability);
            // A transaction can be a checkpoint instead.
            let logged = logged.or_else(|error| match error {
                Error::StorageFull { .. } if shared.flush.failure().is_none() => Ok(false),
                error => Err(error),
            });
            logged.and_then(|logged| {
                if !logged {
                    return Ok(None);
                }
                if !change(shared, writer, collection, path, key, &payload, version) {
                    change_copy(shared, writer, collection, key, &cell)?;
                }
                let logged_bytes = writer.log.as_ref().map_or(0, |log| log.bytes_written) - log_before;
                writer.write_ahead_if_due(shared, dirty_before, logged_bytes as usize);
                Ok(Some(CommitInfo { version }))
            })
        }
        None => Ok(None),
    };
    writer.payload = payload;
    result
}

/// The path, if its inner pages are dirty and the leaf has room for the record and no out-of-line values.
fn find_path(shared: &Shared, owner: u32, root: Child, key: &[u8], payload: &[u8], version: u64) -> Option<Path> {
    let pager = &shared.pager;
    let mut inner = Vec::with_capacity(4);
    let Pointer::Memory(mut number) = root.pointer else {
        return None;
    };
    let mut node = pager.dirty_page(number)?;
    while !node.is_leaf() {
        let index = node.child_index(key);
        inner.push((number, index));
        let pointer = node.child(index).pointer;
        match pointer {
            Pointer::Memory(child) => {
                number = child;
                node = pager.dirty_page(number)?;
            }
            Pointer::Disk(reference) if node.level() == 1 => {
                let capacity = shared.config.limits.node_capacity;
                if pager.dirty_bytes() + capacity > shared.config.max_dirty_bytes() {
                    return None;
                }
                // Reading fails for the transaction too, which will tell.
                let leaf = Pages::child(pager, &node, index, owner, Access::Point).ok()?;
                let copy = leaf.writable_copy(capacity, version);
                let (index, found) = copy.lower_bound(key);
                let fits = !copy.has_overflow() && copy.has_room(index, found, key, payload);
                return fits.then_some(Path {
                    inner,
                    leaf: Leaf::Copied(copy, reference),
                    index,
                    found,
                });
            }
            Pointer::Disk(_) => return None,
        }
    }
    let (index, found) = node.lower_bound(key);
    let fits = !node.has_overflow() && node.has_room(index, found, key, payload);
    fits.then_some(Path {
        inner,
        leaf: Leaf::Dirty(number),
        index,
        found,
    })
}

/// Writes the log's record; `false`, with nothing done, if the commit has to go another way.
fn log_change(
    shared: &Shared,
    writer: &mut Writer,
    collection: u32,
    key: &[u8],
    value: &[u8],
    version: u64,
    durability: Durability,
) -> Result<bool> {
    if durability == Durability::None {
        writer.unlogged = true;
        return Ok(true);
    }
    let unlogged = writer.unlogged;
    // A full log takes a checkpoint, which is the other way's work.
    let usable = |log: &Log| !unlogged && !log.checkpoint_first && log.has_room(log.max_payload());
    if !writer.log.as_ref().is_some_and(usable) {
        return Ok(false);
    }
    writer.begin_log(shared)?;
    let mut record = std::mem::take(&mut writer.record);
    record.clear();
    let operation = Operation::Set {
        collection,
        key,
        value,
        expires: 0,
    };
    operation.encode(&mut record);
    Operation::End.encode(&mut record);
    let result = match &mut writer.log {
        Some(log) => super::commit::append(shared, log, &record, version - 1, version, false).map(|()| true),
        None => Ok(false),
    };
    writer.record = record;
    result
}

/// The change itself, which cannot fail; `false`, with nothing changed, if a snapshot was taken since this was looked for.
fn change(
    shared: &Shared,
    writer: &mut Writer,
    collection: &str,
    path: Path,
    key: &[u8],
    payload: &[u8],
    version: u64,
) -> bool {
    // No snapshot can be taken before it is given back.
    let mut published = shared.published();
    if !published.is_unwatched() {
        return false;
    }
    let pager = &shared.pager;
    writer.space.release_ahead(pager);
    let delta = u64::from(!path.found);
    let put = |leaf: &mut Node| {
        let done = if path.found {
            leaf.replace_payload(path.index, payload)
        } else {
            leaf.insert(path.index, key, payload)
        };
        debug_assert!(done, "there was room when it was looked for");
    };
    match path.leaf {
        Leaf::Dirty(number) => pager.change_dirty(number, put),
        Leaf::Copied(mut copy, block) => {
            put(&mut copy);
            let number = pager.new_number();
            pager.insert_dirty(number, Arc::new(copy));
            pager.remove(PageId::disk(block.unit));
            let extent = Extent {
                start: block.unit,
                units: u64::from(block.units),
            };
            writer.space.retire(std::iter::once(extent));
            if let Some((parent, index)) = path.inner.last() {
                pager.change_dirty(*parent, |node| node.set_pointer(*index, Pointer::Memory(number)));
            }
        }
    }
    if delta > 0 {
        for (number, index) in &path.inner {
            pager.change_dirty(*number, |node| {
                let child = node.child(*index);
                node.set_child(
                    *index,
                    Child {
                        count: child.count + delta,
                        ..child
                    },
                );
            });
        }
    }
    let current: &mut Version = Arc::make_mut(&mut published.current);
    current.version = version;
    if let Some(entry) = current.collections.get_mut(collection)
        && let Some(root) = &mut entry.root
    {
        root.count += delta;
    }
    drop(published);
    shared.notify();
    true
}

/// The change in copies of the pages, for the case that a snapshot was taken after it was logged.
fn change_copy(shared: &Shared, writer: &mut Writer, collection: &str, key: &[u8], cell: &LeafCell<'_>) -> Result<()> {
    let mut state = (*shared.current()).clone();
    state.version += 1;
    let mut draft = Draft::new(state.version);
    let Some(entry) = state.collections.get_mut(collection) else {
        return Ok(());
    };
    let mut editor = Editor {
        pager: &shared.pager,
        draft: &mut draft,
        free: &mut writer.space.free,
        root: &mut entry.root,
        owner: entry.id,
        generation: writer.superblock.generation + 1,
        compression: shared.config.compression,
        limits: shared.config.limits,
    };
    // The pages are in memory and the leaf has room, so this does not fail; if it did, memory and log would disagree.
    let changed = editor.put(key, cell);
    changed.inspect_err(|error| shared.flush.fail(&error.to_string()))?;
    writer.stage(shared, state, &mut draft, false);
    Ok(())
}
