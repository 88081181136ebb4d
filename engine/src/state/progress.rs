//! How far work on all blocks has come.

/// Where a pass over all blocks continues: the trees ordered by name, then the catalog.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct PassPosition {
    pub name: String,
    pub key: Vec<u8>,
    pub is_in_catalog: bool,
}

/// Where a re-encryption stands. In memory only; without it, the next call looks through all blocks
/// from the beginning.
#[cfg(feature = "encryption")]
#[derive(Default)]
pub(crate) struct Reencryption {
    pub position: PassPosition,
    /// Extents of values that were being staged when it began.
    pub staged: Vec<crate::pages::Extent>,
    /// None of them was left when the pass began.
    pub counts: bool,
    /// This pass has found blocks under the previous key.
    pub has_found: bool,
    /// Units moved in all.
    pub moved: u64,
}
