//! Maintenance and transfer: verification, compaction, re-encryption, layout, salvage, backups.

mod backup;
mod compact;
mod layout;
mod recover;
#[cfg(feature = "encryption")]
mod reencrypt;
mod slice;
mod verify;

pub use backup::{BackupOutcome, BackupPieces, BackupProgress, BackupReport, RestoreReport, restore};
pub use compact::{CompactEnd, CompactOptions, CompactProgress, CompactReport};
pub use layout::{ExtentKind, LayoutPart, LayoutScan};
pub use recover::{
    Completeness, DamagedRange, LogState, LostRecord, RecoverPhase, RecoverProgress, RecoverReport,
    RecoveredCollection, RecoveredLog, RecoveredRoot, recover,
};
#[cfg(feature = "encryption")]
pub use reencrypt::{ReencryptEnd, ReencryptOptions, ReencryptProgress};
pub use verify::{Verification, VerifyProgress, VerifyReport};
