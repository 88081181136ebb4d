//! Reports of finished work, in JSON.

use mangrove_engine::{
    BackupReport, Completeness, DamagedRange, LogState, LostRecord, RecoverReport, RecoveredCollection, RecoveredRoot,
    RestoreReport,
};
use mangrove_host::json::{Object, array, problem};

/// Maximum length of each list; the counts are complete.
const MAX_ITEMS: usize = 10_000;

pub(crate) fn restored(report: &RestoreReport) -> String {
    Object::default()
        .text("databaseId", &format!("{:032x}", report.database_id))
        .number("version", report.version)
        .number("collections", report.collections)
        .number("entries", report.records)
        .number("bytes", report.bytes)
        .number("pagesChecked", report.blocks)
        .end()
}

/// The report of an incremental backup.
pub(crate) fn saved(report: &BackupReport) -> String {
    Object::default()
        .text("databaseId", &format!("{:032x}", report.database_id))
        .number("base", report.base)
        .number("version", report.version)
        .number("commits", report.commits)
        .number("changes", report.changes)
        .number("bytes", report.bytes)
        .end()
}

/// The report of an incremental backup that was added to a database.
pub(crate) fn added(report: &RestoreReport) -> String {
    Object::default()
        .text("databaseId", &format!("{:032x}", report.database_id))
        .number("version", report.version)
        .number("commits", report.commits)
        .number("changes", report.changes)
        .number("bytes", report.bytes)
        .end()
}

/// Returns `None` if the recovery was told to end.
pub(crate) fn recovered(report: &RecoverReport) -> Option<String> {
    let completeness = match report.completeness {
        Completeness::Exact => "exact",
        Completeness::Reconstructed => "reconstructed",
        Completeness::Salvage => "salvage",
        Completeness::Cancelled => return None,
    };
    let ranges = report.damaged_ranges.iter().take(MAX_ITEMS).map(range);
    let lost = report.lost_records.iter().take(MAX_ITEMS).map(lost_record);
    let object = Object::default()
        .text("completeness", completeness)
        .raw("root", &root(report.root))
        .raw("log", &log(report))
        .number("entries", report.records())
        .raw("collections", &array(report.collections.iter().map(collection)))
        .raw("damagedRanges", &array(ranges))
        .number("damagedRangeCount", report.damaged_range_count)
        .raw("lostRecords", &array(lost))
        .number("lostRecordCount", report.lost_record_count)
        .number("unreadablePages", report.unreadable_blocks)
        .raw("problems", &array(report.problems.iter().map(problem)));
    Some(object.end())
}

fn root(root: RecoveredRoot) -> String {
    match root {
        RecoveredRoot::Superblock { generation, version } => Object::default()
            .text("kind", "superblock")
            .number("generation", generation)
            .number("version", version),
        RecoveredRoot::Catalog { generation } => Object::default()
            .text("kind", "catalog")
            .number("generation", generation),
        RecoveredRoot::None => Object::default().text("kind", "none"),
    }
    .end()
}

fn log(report: &RecoverReport) -> String {
    let state = match report.log.state {
        LogState::Absent => "absent",
        LogState::Missing => "missing",
        LogState::Intact => "intact",
        LogState::Damaged => "damaged",
    };
    Object::default()
        .text("state", state)
        .number("appliedRecords", report.log.applied_records)
        .number("lostCommits", report.log.lost_commits)
        .end()
}

fn collection(found: &RecoveredCollection) -> String {
    Object::default()
        .text("name", &found.name)
        .number("id", u64::from(found.id))
        .flag("named", found.is_named)
        .number("count", found.count)
        .end()
}

fn range(range: &DamagedRange) -> String {
    let object = named(range.collection.as_deref()).text("lower", &base64(&range.lower));
    let object = match &range.upper {
        Some(upper) => object.text("upper", &base64(upper)),
        None => object.raw("upper", "null"),
    };
    let object = match range.expected {
        Some(expected) => object.number("expected", expected),
        None => object.raw("expected", "null"),
    };
    object.number("recovered", range.recovered).end()
}

fn lost_record(record: &LostRecord) -> String {
    named(record.collection.as_deref())
        .text("key", &base64(&record.key))
        .end()
}

/// Begins an object with the collection's name; the catalog has none.
fn named(collection: Option<&str>) -> Object {
    match collection {
        Some(name) => Object::default().text("collection", name),
        None => Object::default().raw("collection", "null"),
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let word = part.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for digit in 0..4 {
            let index = (word >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= part.len() {
                char::from(DIGITS[index])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let encoded = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (text, expected) in texts.iter().zip(encoded) {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }
}
