//! Layouts that the client reads in slices.

use mangrove_engine::{Database, Error, ExtentKind, LayoutPart, LayoutScan, Result};

use super::State;
use crate::protocol::Writer;
use crate::report;
use crate::table::MAX_OPEN_LARGE;

impl State {
    /// Visits up to `visits` more nodes and values. `begins` marks the first request of an id; 0
    /// visits end it early. Writes how many records were reached and of how many, then the parts of
    /// the file that were found or, at the end, 0 and the figures of the file.
    pub(crate) fn layout(
        &mut self,
        id: u64,
        visits: u64,
        begins: bool,
        database: &Database,
        out: &mut Writer,
    ) -> Result<()> {
        let Some(visits) = usize::try_from(visits).ok().filter(|&visits| visits > 0) else {
            self.layouts.remove(id);
            return Ok(());
        };
        if begins {
            self.layouts
                .check_room(MAX_OPEN_LARGE, "layouts at once; wait for one to end")?;
            self.layouts.insert(id, database.layout_scan()?);
        }
        // A layout is not handed over: starting over would report parts twice.
        let scan = self.layouts.get_mut(id).ok_or(Error::SnapshotLost)?;
        let found = scan.next_parts(visits);
        let (done, total) = scan.progress();
        out.uv(done);
        out.uv(total);
        if let Ok(Some(parts)) = found {
            // One more than their number: 0 marks the end.
            out.uv(parts.len() as u64 + 1);
            for part in &parts {
                write_part(part, out);
            }
            return Ok(());
        }
        out.uv(0);
        write_whole(scan, out);
        self.layouts.remove(id);
        found.map(drop)
    }
}

fn write_part(part: &LayoutPart, out: &mut Writer) {
    out.uv(match part.kind {
        ExtentKind::Superblock => 0,
        ExtentKind::Catalog => 1,
        ExtentKind::FreeMap => 2,
        ExtentKind::Kept => 3,
        ExtentKind::Free => 4,
        ExtentKind::Internal => 5,
        ExtentKind::Index => 6,
        ExtentKind::Value => 7,
        // A node of this level.
        _ => 8 + u64::from(part.level),
    });
    out.uv(part.start_unit);
    out.uv(part.units);
    if let Some(collection) = part.collection {
        out.uv(u64::from(collection));
        out.uv(part.used_bytes);
    }
}

fn write_whole(scan: &LayoutScan, out: &mut Writer) {
    out.uv(scan.snapshot().version());
    out.uv(scan.file_bytes());
    out.uv(scan.unit_bytes() as u64);
    out.uv(scan.node_bytes() as u64);
    report::collections(&scan.snapshot().collections(), out);
}
