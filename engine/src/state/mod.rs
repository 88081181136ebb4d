//! State of an open database: versions and their collections, the versions that readers pin, and
//! the writer.

mod collections;
pub(crate) mod expiry;
pub(crate) mod feed;
mod history;
pub(crate) mod index;
mod merge_thread;
mod merging;
mod overtaken;
mod progress;
mod published;
mod reserve;
mod shared;
mod superblock_pair;
mod version;
mod writer;

pub(crate) use collections::{Collections, Summary};
pub(crate) use feed::Feed;
pub(crate) use feed::decode_changes;
pub use feed::{Change, Commit};
pub(crate) use history::{History, Missed};
pub use index::{Index, IndexDefinition, IndexKeys, IndexProgress};
pub(crate) use merging::Merging;
pub(crate) use overtaken::{may_be_overtaken, newest_generation};
pub(crate) use progress::PassPosition;
#[cfg(feature = "encryption")]
pub(crate) use progress::Reencryption;
pub(crate) use published::Published;
pub(crate) use shared::{Config, Credentials, Shared, check_name};
pub(crate) use version::{CLIENTS, Collection, MAX_CODEC_BYTES, MAX_NAME_BYTES, Version};
pub use version::{CollectionInfo, Entry};
pub(crate) use writer::Writer;
