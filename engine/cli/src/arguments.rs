//! Arguments that several verbs share.

use clap::{Args, ValueEnum};

use crate::codec::Raw;

#[derive(Args)]
pub(crate) struct CollectionArguments {
    /// Name of the collection; the default is the database's own, whose name is "".
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) collection: String,
    #[command(flatten)]
    pub(crate) raw: RawArguments,
}

#[derive(Args)]
pub(crate) struct RawArguments {
    /// How strings stand for the bytes of keys and values; {"$bytes":"base64"} is read in any case.
    #[arg(long = "raw", value_name = "FORM", default_value = "utf8")]
    pub(crate) form: Raw,
}

#[derive(Args)]
pub(crate) struct DurabilityArguments {
    /// When a commit is done.
    #[arg(long, value_name = "WHEN", default_value = "strict")]
    pub(crate) durability: Durability,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// When it survives a power cut.
    Strict,
    /// When it survives the death of the process.
    Relaxed,
    /// At once; it survives once the command has ended.
    None,
}

impl From<Durability> for mangrove_engine::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Strict => Self::Strict,
            Durability::Relaxed => Self::Relaxed,
            Durability::None => Self::None,
        }
    }
}
