//! Copy-on-write: an [`Editor`] changes one tree inside a draft.

use crate::block::Compression;
use crate::node::{Child, Limits};
use crate::pages::{Draft, FreeSpace, Pager};

/// Changes one tree. After an error the draft is half-changed and must be dropped.
pub(crate) struct Editor<'a> {
    pub pager: &'a Pager,
    pub draft: &'a mut Draft,
    pub free: &'a FreeSpace,
    pub root: &'a mut Option<Child>,
    pub owner: u32,
    pub generation: u64,
    pub compression: Compression,
    pub limits: Limits,
}
