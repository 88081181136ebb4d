//! One slice of a compaction or re-encryption: moves some blocks and publishes that in a checkpoint.
//!
//! Readers see no change, so the version stays the same and the log gets no record. The state's
//! [`Age`](crate::pages::Age) identifies snapshots that need the old extents.

use crate::error::Result;
use crate::pages::Draft;
use crate::state::{PassPosition, Shared, Version, Writer};
use crate::tree::Editor;
use crate::tree::relocate::{Aim, Relocation, applies_to_record};

/// Catalog entries that one slice examines.
const SLICE_ENTRIES: usize = 1024;

/// Outcome of a slice.
pub(super) struct Slice {
    pub moved: u64,
    /// Blocks had to move, of trees or of the catalog, whether there was space for them or not.
    #[cfg_attr(not(feature = "encryption"), allow(dead_code, reason = "only re-encryptions ask"))]
    pub has_found: bool,
    pub next: Option<PassPosition>,
}

/// Makes a checkpoint, even if nothing changed.
pub(super) fn checkpoint(shared: &Shared, writer: &mut Writer) -> Result<()> {
    writer.checkpoint_newest(shared, false)
}

/// Moves some blocks, starting at `position`, and makes a checkpoint if any moved. The newest version has
/// to be durable: a log record refers to value blocks by address, so they must not move until a
/// checkpoint contains the record.
pub(super) fn run(
    shared: &Shared,
    writer: &mut Writer,
    aim: &Aim,
    position: &PassPosition,
    units: u64,
) -> Result<Slice> {
    debug_assert_eq!(
        writer.durable.version,
        shared.newest().version,
        "the newest version is durable"
    );
    let mut draft = Draft::default();
    let result = move_blocks(shared, writer, &mut draft, aim, position, units);
    writer.rewritten_entries.clear();
    if result.is_err() {
        let unpublished = draft.take_unpublished();
        writer.give_back(shared, unpublished);
    }
    result
}

/// After a failure the draft lists the extents to return.
fn move_blocks(
    shared: &Shared,
    writer: &mut Writer,
    draft: &mut Draft,
    aim: &Aim,
    position: &PassPosition,
    units: u64,
) -> Result<Slice> {
    let mut state = (*shared.newest()).clone();
    state.moves += 1;
    let mut relocation = Relocation::new(*aim, units);
    let next = if position.is_in_catalog {
        choose_entries(shared, writer, &state, aim, position)
    } else {
        move_in_trees(shared, writer, &mut state, draft, position, &mut relocation).map(Some)
    };
    for extent in relocation.reserved.drain(..) {
        writer.space.free.free(extent)?;
    }
    let next = next?;
    let has_found = relocation.has_found || !writer.rewritten_entries.is_empty();
    if relocation.moved > 0 || !writer.rewritten_entries.is_empty() {
        writer.checkpoint(shared, &mut state, draft)?;
    }
    Ok(Slice {
        moved: relocation.moved,
        has_found,
        next,
    })
}

fn move_in_trees(
    shared: &Shared,
    writer: &mut Writer,
    state: &mut Version,
    draft: &mut Draft,
    position: &PassPosition,
    relocation: &mut Relocation,
) -> Result<PassPosition> {
    let generation = writer.superblock.generation + 1;
    let changed_at = state.version;
    let trees = state.collections.clone();
    for (name, tree) in trees.iter_from(&position.name).filter(|(_, tree)| tree.root.is_some()) {
        let is_first = *name == position.name;
        if !is_first && relocation.is_spent(Vec::new) {
            return Ok(PassPosition {
                name: name.clone(),
                ..PassPosition::default()
            });
        }
        let mut root = tree.root;
        let mut editor = Editor {
            pager: &shared.pager,
            draft: &mut *draft,
            free: &writer.space.free,
            root: &mut root,
            owner: tree.id,
            generation,
            compression: shared.config.compression,
            limits: shared.config.limits,
        };
        let from: &[u8] = if is_first { &position.key } else { &[] };
        let moved = editor.relocate(from, relocation);
        moved.map_err(|error| error.in_collection(name))?;
        if root != tree.root
            && let Some((_, collection)) = state.collections.by_id_mut(tree.id)
        {
            collection.root = root;
            collection.changed_at = changed_at;
        }
        if let Some(key) = relocation.next.take() {
            return Ok(PassPosition {
                name: name.clone(),
                key,
                is_in_catalog: false,
            });
        }
    }
    Ok(PassPosition {
        is_in_catalog: true,
        ..PassPosition::default()
    })
}

/// Marks entries in catalog blocks that have to move: the checkpoint rewrites the catalog path to
/// each marked entry.
fn choose_entries(
    shared: &Shared,
    writer: &mut Writer,
    state: &Version,
    aim: &Aim,
    position: &PassPosition,
) -> Result<Option<PassPosition>> {
    let root = writer.superblock.catalog;
    let mut names = state.collections.iter_from(&position.name);
    for (name, _) in names.by_ref().take(SLICE_ENTRIES) {
        if applies_to_record(&shared.pager, root.as_ref(), 0, name.as_bytes(), aim)? {
            let entries = &mut writer.rewritten_entries;
            if let Err(at) = entries.binary_search(name) {
                entries.insert(at, name.clone());
            }
        }
    }
    Ok(names.next().map(|(name, _)| PassPosition {
        name: name.clone(),
        is_in_catalog: true,
        ..PassPosition::default()
    }))
}
