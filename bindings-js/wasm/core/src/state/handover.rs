//! What a client has open, exported so that another session can continue it: in the next leader's
//! tab, or after the engine was reopened. Snapshots and scans continue if the database is still in
//! the state that they read. Transactions never do, as what they read could have changed unnoticed.

use mangrove_engine::{ConflictReason, Database, Error, Result};

use super::indexes::resume_index;
use super::{Codecs, Losses, Lost, ReadView, Slot, State};
use crate::pending::Kept;
use crate::protocol::{Reader, Writer};
use crate::scan::{Origin, Scan};
use crate::schema::Joined;

impl State {
    /// Exports what is open; `None` if that has not changed since the last export. With `last` it
    /// is always exported, with the commits that followers have not read; nothing may be committed
    /// here afterwards.
    pub(crate) fn export(&mut self, database: &Database, opening: u64, last: bool) -> Option<Vec<u8>> {
        if !(std::mem::take(&mut self.has_changed) || last) {
            return None;
        }
        let mut out = Writer::default();
        out.uv(opening);
        self.write_open(database, last, &mut out);
        Some(out.into_bytes())
    }

    fn write_open(&mut self, database: &Database, last: bool, out: &mut Writer) {
        out.uv(self.slots.len() as u64);
        for slot in &self.slots {
            for text in [&slot.name, &slot.key_codec, &slot.value_codec] {
                out.bytes(text.as_bytes());
            }
            out.uv(slot.indexes.len() as u64);
            for index in &slot.indexes {
                out.bytes(index.name.as_bytes());
                out.uv(u64::from(index.version));
                out.flag(index.unique);
            }
        }
        out.uv(self.snapshots.iter().count() as u64);
        for (id, view) in self.snapshots.iter() {
            out.uv(id);
            out.uv(view.snapshot.version());
        }
        let lost = self.lost_elsewhere();
        out.uv(lost.len() as u64);
        for (id, lost) in lost {
            out.uv(id);
            out.flag(matches!(lost, Lost::Transaction));
        }
        out.flag(self.lost.is_all);
        let scans = || self.scans.iter().filter(|(_, scan)| scan.origin.is_some());
        out.uv(scans().count() as u64);
        for (id, scan) in scans() {
            if let Some(origin) = &scan.origin {
                out.uv(id);
                out.uv(origin.collection);
                out.uv(origin.index);
                out.uv(origin.version);
                out.bound(&origin.lower);
                out.bound(&origin.upper);
                scan.export(out);
            }
        }
        self.followers.export(database, last, out);
        out.flag(self.joined.is_some());
        if let Some(joined) = self.joined {
            out.uv(joined.version);
            out.flag(joined.upgrades);
        }
    }

    /// Returns what no other session can continue.
    fn lost_elsewhere(&self) -> Vec<(u64, Lost)> {
        let mut lost: Vec<(u64, Lost)> = self.lost.table.iter().map(|(id, lost)| (id, *lost)).collect();
        lost.extend(self.transactions.iter().map(|(id, _)| (id, Lost::Transaction)));
        let scans = self.scans.iter().filter(|(_, scan)| scan.origin.is_none());
        lost.extend(scans.map(|(id, scan)| {
            let lost = if scan.transaction == 0 {
                Lost::View
            } else {
                Lost::Transaction
            };
            (id, lost)
        }));
        lost.extend(self.backups.iter().map(|(id, _)| (id, Lost::View)));
        // Verifications are not listed: the client starts them over.
        lost
    }

    /// Imports what [`export`](Self::export) wrote. Snapshots and scans continue only in the state in
    /// which the database was taken over, and those of indexes only if `reads_indexes`; followers, only if
    /// that state has all that they have read.
    pub(crate) fn import(
        database: &Database,
        kept: &Kept,
        reads_indexes: bool,
        reader: &mut Reader<'_>,
    ) -> Result<Self> {
        let mut state = Self {
            is_portable: true,
            ..Self::default()
        };
        if reader.is_empty() {
            state.lost.is_all = true;
            return Ok(state);
        }
        let is_of_other = reader.uv()? != kept.opening;
        for _ in 0..reader.count()? {
            state.add_slot(Slot {
                name: reader.str()?.to_owned(),
                key_codec: reader.str()?.to_owned(),
                value_codec: reader.str()?.to_owned(),
                codecs: Codecs::Unknown,
                indexes: (0..reader.count()?)
                    .map(|_| reader.definition())
                    .collect::<Result<_>>()?,
            });
        }
        let in_state = |version: u64| kept.inherited.as_ref().filter(|snapshot| snapshot.version() == version);
        for _ in 0..reader.count()? {
            let (id, version) = (reader.uv()?, reader.uv()?);
            match in_state(version) {
                Some(snapshot) => state.snapshots.insert(id, ReadView::new(snapshot.clone())),
                None => state.lost.table.insert(id, Lost::View),
            }
        }
        for _ in 0..reader.count()? {
            let id = reader.uv()?;
            let lost = if reader.flag()? { Lost::Transaction } else { Lost::View };
            state.lost.table.insert(id, lost);
        }
        state.lost.is_all = reader.flag()?;
        for _ in 0..reader.count()? {
            let id = reader.uv()?;
            let origin = Origin {
                collection: reader.uv()?,
                index: reader.uv()?,
                version: reader.uv()?,
                lower: reader.owned_bound()?,
                upper: reader.owned_bound()?,
            };
            let index = origin.index;
            let snapshot = in_state(origin.version).filter(|_| index == 0 || reads_indexes);
            let slot = state.slots.get(state.slot_index(origin.collection)?);
            let records = snapshot.filter(|_| index == 0);
            let tree = records.and_then(|snapshot| snapshot.collection(&slot?.name));
            let exported = *reader;
            let mut scan = Scan::resume(tree.as_ref(), origin, reader)?;
            if let (Some(snapshot), Some(slot)) = (snapshot, slot) {
                if index > 0 {
                    resume_index(&mut scan, slot, index - 1, snapshot, exported)?;
                }
                state.scans.insert(id, scan);
            } else {
                state.lost.table.insert(id, Lost::View);
            }
        }
        let known = is_of_other.then_some(kept.opened_at);
        state.followers.import(database, known, reader)?;
        if reader.flag()? {
            state.joined = Some(Joined {
                version: reader.uv()?,
                upgrades: reader.flag()?,
            });
        }
        Ok(state)
    }
}

/// Returns the error for an id under which nothing of this kind is open.
pub(super) fn missing(losses: &Losses, id: u64, kind: Lost) -> Error {
    let lost = losses.table.get(id).copied().or(losses.is_all.then_some(kind));
    match lost {
        None => Error::Closed,
        Some(Lost::View) => Error::SnapshotLost,
        Some(Lost::Transaction) => Error::conflict(None, None, ConflictReason::Lost),
    }
}
