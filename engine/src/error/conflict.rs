//! Conflicts that stop a transaction or fail a check, and their messages.

use std::fmt;

use super::Error;

/// Why a transaction was not committed. It changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Name of the collection, if known.
    pub collection: Option<Box<str>>,
    /// The key, if the conflict is about a single key.
    pub key: Option<Box<[u8]>>,
    /// What happened.
    pub reason: ConflictReason,
}

/// What happened to the data that a transaction depends on.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictReason {
    /// Another commit changed it.
    Changed,
    /// A check found another version of the record than expected; `None` means no record.
    Version {
        /// Version that the check expects.
        expected: Option<u64>,
        /// Version of the record.
        found: Option<u64>,
    },
    /// The commits since the transaction began are no longer kept, so it cannot be validated.
    TooMany,
    /// The transaction's state is lost with the process or tab that kept it.
    Lost,
}

impl Conflict {
    /// The message, with `key` as the text of the key.
    ///
    /// A caller that knows the key encoding can show the key in its original form.
    #[must_use]
    pub fn message(&self, key: &str) -> String {
        let collection = self.collection.as_deref().unwrap_or_default();
        let subject: &[&str] = match (&self.key, collection) {
            (Some(_), "") => &["key ", key],
            (Some(_), name) => &["key ", key, " of collection \"", name, "\""],
            (None, "") => &["what the transaction read"],
            (None, name) => &["what the transaction read of collection \"", name, "\""],
        };
        let subject = subject.concat();
        match self.reason {
            ConflictReason::Changed => [&subject, " was changed by another commit; run the transaction again"].concat(),
            ConflictReason::Version { expected, found } => [
                &subject,
                " has ",
                &describe(found),
                ", the check expects ",
                &describe(expected),
                "; read it and try again",
            ]
            .concat(),
            ConflictReason::TooMany => {
                "too many commits were made since the transaction began to compare it with them; run it again"
                    .to_owned()
            }
            ConflictReason::Lost => {
                "the transaction is lost with the process or tab that kept it; run it again".to_owned()
            }
        }
    }
}

fn describe(version: Option<u64>) -> String {
    version.map_or_else(
        || "no entry".to_owned(),
        |version| ["version ", &version.to_string()].concat(),
    )
}

impl Error {
    /// Creates a conflict in a collection, at a key, as far as they are known.
    #[must_use]
    pub fn conflict(collection: Option<&str>, key: Option<&[u8]>, reason: ConflictReason) -> Self {
        Self::Conflict(Box::new(Conflict {
            collection: collection.map(Into::into),
            key: key.map(Into::into),
            reason,
        }))
    }
}

/// Maximum number of key bytes shown in a message.
const SHOWN_BYTES: usize = 32;

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_deref().unwrap_or_default();
        let shown = key.iter().take(SHOWN_BYTES).flat_map(|byte| byte.escape_ascii());
        let mut text: String = shown.map(char::from).collect();
        if key.len() > SHOWN_BYTES {
            text.push('…');
        }
        f.write_str(&self.message(&text))
    }
}
