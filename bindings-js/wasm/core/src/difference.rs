//! The difference between two states of a database whose commits in between are not known.

use mangrove_engine::{Change, Cursor, Direction, Error, KeyRange, Result, Snapshot};

use crate::filter::Filter;
use crate::range;

/// Limit on the bytes of values in the one commit, as for a feed in memory.
const MAX_BYTES: usize = 32 << 20;

/// Passes the changes from `before` to `after` to `give`, of the filter's range or of everything.
/// O(n).
///
/// # Errors
/// [`Error::TruncatedFeed`] if `before` can no longer be read or the values exceed [`MAX_BYTES`];
/// errors of reading `after`; [`Error::CodecMismatch`] if the filter's codecs are not those stored.
pub(crate) fn difference(
    before: &Snapshot,
    after: &Snapshot,
    filter: Option<&Filter>,
    mut give: impl FnMut(Change),
) -> Result<()> {
    let (old, new) = (before.collections(), after.collections());
    let is_of_interest = |name: &str| filter.is_none_or(|filter| filter.name == name);
    for gone in old.iter().filter(|old| after.codecs(&old.name).is_none()) {
        if is_of_interest(&gone.name) {
            give(Change::Drop {
                collection: gone.name.clone(),
            });
        }
    }
    for collection in new.iter().filter(|new| is_of_interest(&new.name)) {
        let known = before.codecs(&collection.name);
        let codecs = Change::Codecs {
            collection: collection.name.clone(),
            key_codec: collection.key_codec.clone(),
            value_codec: collection.value_codec.clone(),
        };
        match filter {
            Some(filter) => _ = filter.touches(&codecs)?,
            None if known != Some((&collection.key_codec, &collection.value_codec)) => give(codecs),
            None => {}
        }
        let range = filter.map_or(KeyRange::all(), Filter::range);
        if !range::is_empty(&range) {
            compare(before, after, &collection.name, range, &mut give)?;
        }
    }
    Ok(())
}

/// Compares the records of both states in one pass.
fn compare(
    before: &Snapshot,
    after: &Snapshot,
    name: &str,
    range: KeyRange<'_>,
    give: &mut impl FnMut(Change),
) -> Result<()> {
    let truncated = || Error::TruncatedFeed {
        horizon: after.version().into(),
    };
    let cursor = |snapshot: &Snapshot| {
        snapshot
            .collection(name)
            .map(|tree| tree.cursor(range, Direction::Forward))
    };
    let (mut old, mut new) = (cursor(before), cursor(after));
    let step_old = |old: &mut Option<Cursor>| -> Result<()> {
        let has_more = old.as_mut().map_or(Ok(false), Cursor::advance);
        // The writer may have reused its blocks.
        if !has_more.map_err(|_| truncated())? {
            *old = None;
        }
        Ok(())
    };
    let step_new = |new: &mut Option<Cursor>| -> Result<()> {
        if !new.as_mut().map_or(Ok(false), Cursor::advance)? {
            *new = None;
        }
        Ok(())
    };
    let mut bytes = 0;
    step_old(&mut old)?;
    step_new(&mut new)?;
    loop {
        let order = match (&old, &new) {
            (None, None) => return Ok(()),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(old), Some(new)) => old.key().cmp(new.key()),
        };
        if order.is_lt()
            && let Some(old) = &old
        {
            give(Change::Delete {
                collection: name.to_owned(),
                key: old.key().to_vec(),
                expired: false,
            });
        } else if let Some(new) = &new
            && (order.is_gt() || !is_same(old.as_ref(), new).map_err(|_| truncated())?)
        {
            let value = new.value()?;
            bytes += value.len();
            if bytes > MAX_BYTES {
                return Err(truncated());
            }
            give(Change::Set {
                collection: name.to_owned(),
                key: new.key().to_vec(),
                value,
                expires_at: new.expires_at(),
            });
        }
        if order.is_le() {
            step_old(&mut old)?;
        }
        if order.is_ge() {
            step_new(&mut new)?;
        }
    }
}

/// Whether two records of a key are from the same commit.
fn is_same(old: Option<&Cursor>, new: &Cursor) -> Result<bool> {
    let Some(old) = old.filter(|old| old.version() == new.version()) else {
        return Ok(false);
    };
    // Version 0: the commit is not known.
    Ok(new.version() != 0 || (old.expires_at() == new.expires_at() && old.value()? == new.value()?))
}
