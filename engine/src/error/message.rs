//! Messages of errors, built without `core::fmt`, which the WebAssembly module therefore lacks.

use super::{Conflict, ConflictReason, Corruption, Error, IndexRefusal, TooLarge};

/// A message in the making.
#[derive(Default)]
pub(crate) struct Message(String);

impl Message {
    /// Appends a text.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.0.push_str(text);
        self
    }

    /// Appends a number in decimal.
    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        self.text(&number.to_string())
    }

    /// Appends at most 32 bytes in hexadecimal.
    fn hex(&mut self, bytes: &[u8]) -> &mut Self {
        self.text("0x");
        for byte in bytes.iter().take(SHOWN_BYTES) {
            for digit in [byte >> 4, byte & 15] {
                self.0.extend(char::from_digit(u32::from(digit), 16));
            }
        }
        if bytes.len() > SHOWN_BYTES {
            self.text("..");
        }
        self
    }

    /// Returns the message and leaves an empty one.
    pub(crate) fn end(&mut self) -> String {
        std::mem::take(&mut self.0)
    }

    fn too_large(&mut self, what: &str, TooLarge { len_bytes, max_bytes }: &TooLarge) -> &mut Self {
        self.text("the ").text(what).text(" has ").number(*len_bytes as u64);
        self.text(" bytes, at most ")
            .number(*max_bytes as u64)
            .text(" are allowed")
    }

    fn corruption(&mut self, corruption: &Corruption) -> &mut Self {
        self.text("corrupt database: ").text(&corruption.what);
        if let Some(unit) = corruption.unit {
            self.text(", unit ").number(unit);
        }
        if let Some(collection) = &corruption.collection {
            self.text(", collection \"").text(collection).text("\"");
        }
        if let Some((lower, upper)) = &corruption.key_range {
            self.text(", keys from ").hex(lower).text(" to ");
            match upper {
                Some(upper) => self.hex(upper),
                None => self.text("the end"),
            };
        }
        self.text("; the file was not changed")
    }

    fn refusal(&mut self, refusal: &IndexRefusal) -> &mut Self {
        self.text("collection \"").text(&refusal.collection);
        self.text("\", index \"").text(&refusal.index);
        self.text("\": ").text(refusal.what)
    }

    fn version(&mut self, version: Option<u64>) -> &mut Self {
        match version {
            Some(version) => self.text("version ").number(version),
            None => self.text("no entry"),
        }
    }
}

/// Maximum number of key bytes shown in a message.
const SHOWN_BYTES: usize = 32;

/// The message of something that is too long: what it is, its length and the longest, in bytes.
pub(crate) fn too_large(what: &str, len_bytes: usize, max_bytes: usize) -> String {
    let mut message = Message::default();
    message.too_large(what, &TooLarge { len_bytes, max_bytes }).end()
}

/// Joins the parts of a message.
pub(crate) fn join(parts: &[&str]) -> String {
    let mut message = Message::default();
    for part in parts {
        message.text(part);
    }
    message.end()
}

impl Error {
    /// The message: what failed, and what can be done about it. `Display` prints the same.
    #[must_use]
    pub fn message(&self) -> String {
        let mut message = Message::default();
        let to = &mut message;
        match self {
            Self::Io(failure) => to.text(&failure.context).text(": ").text(&failure.source),
            Self::StorageFull { context } => to
                .text(context)
                .text(": no space left; the transaction was undone, free some space and try again"),
            Self::Corrupt(corruption) => to.corruption(corruption),
            Self::CorruptBackup(damage) => {
                to.text("corrupt backup: ").text(&damage.what);
                to.text(", at byte ").number(damage.offset);
                to.text("; nothing was restored, use another copy of it")
            }
            Self::NotADatabase { file } => to
                .text(file)
                .text(" is not a Mangrove database; it was not changed, choose another path"),
            Self::VersionUnsupported { found, supported } => {
                to.text("the database has format version ").number((*found).into());
                to.text(", this build reads ").number((*supported).into());
                to.text("; use a build that reads it")
            }
            #[cfg(feature = "encryption")]
            Self::WrongKey { is_missing: false } => to.text("the key is not that of the database; it was not changed"),
            Self::WrongKey { .. } => to.text("the database is encrypted; open it with its key"),
            #[cfg(feature = "encryption")]
            Self::NotEncrypted => to.text("the database is not encrypted; open it without a key"),
            Self::Locked { file } => to
                .text(file)
                .text(" is open in another process, tab or handle; close it there first"),
            Self::Evicted { file } => to
                .text(file)
                .text(" was removed, renamed or replaced; open the database again"),
            Self::NotFound { what } => to.text(what).text(" does not exist"),
            Self::AlreadyExists { what } => to.text(what).text(" exists already"),
            Self::ReadOnly => to.text("the database was opened read-only"),
            Self::Closed => to.text("the database is closed"),
            Self::SnapshotLost => to.text(
                "the snapshot is lost with the tab that kept it, and the database has changed since; take a new one",
            ),
            Self::TooManyOpen(many) => {
                to.text("there may be no more than ").number(many.limit as u64);
                to.text(" ").text(many.what)
            }
            Self::Poisoned { cause } => {
                to.text("writes are refused after an earlier failure (").text(cause);
                to.text("); reads continue, reopen the database to write")
            }
            Self::KeyTooLarge(key) => to.too_large("key", key),
            Self::ValueTooLarge(value) => to.too_large("value", value),
            Self::InvalidArgument { what } => to.text(what),
            Self::Conflict(conflict) => return conflict.shown(),
            Self::TruncatedFeed { horizon } => to
                .text("changes up to version ")
                .number(**horizon)
                .text(" are no longer kept; start with a new snapshot"),
            Self::Stale => {
                to.text("the writer has overwritten what this reader had opened; refresh the database and read again")
            }
            Self::KeyOrderUnsupported { order } => {
                to.text("the database orders its keys by \"").text(order);
                to.text("\", which this version does not know; use the version that made it")
            }
            Self::WrongBase(wrong) => {
                to.text("the backup builds on version ").number(wrong.base);
                to.text(", the database has version ").number(wrong.version);
                to.text("; restore backups in their order")
            }
            Self::CodecMismatch(codecs) => {
                to.text("collection \"").text(&codecs.collection);
                to.text("\" was written with codecs ").text(&codecs.stored);
                to.text(", not ")
                    .text(&codecs.requested)
                    .text("; open it with the former")
            }
            Self::IndexMismatch(refusal) | Self::IndexIncomplete(refusal) => to.refusal(refusal),
            Self::NotUnique(records) => {
                let text = |key: &[u8]| Message::default().hex(key).end();
                let [stored, other] = &records.keys;
                return records.message(&text(&records.index_key), [&text(stored), &text(other)]);
            }
        };
        message.end()
    }
}

impl Corruption {
    /// The message: what is wrong, and where.
    #[must_use]
    pub fn message(&self) -> String {
        Message::default().corruption(self).end()
    }
}

impl Conflict {
    /// The message, with `key` as the text of the key.
    ///
    /// A caller that knows the key encoding can show the key in its original form.
    #[must_use]
    pub fn message(&self, key: &str) -> String {
        let mut message = Message::default();
        let to = &mut message;
        match self.reason {
            ConflictReason::TooMany => {
                to.text("too many commits were made since the transaction began to compare it with them; run it again")
            }
            ConflictReason::Lost => {
                to.text("the transaction is lost with the process or tab that kept it; run it again")
            }
            ConflictReason::Changed => self
                .subject(key, to)
                .text(" was changed by another commit; run the transaction again"),
            ConflictReason::Version { expected, found } => {
                self.subject(key, to).text(" has ").version(found);
                to.text(", the check expects ")
                    .version(expected)
                    .text("; read it and try again")
            }
        };
        message.end()
    }

    fn subject<'a>(&self, key: &str, to: &'a mut Message) -> &'a mut Message {
        match self.key {
            Some(_) => to.text("key ").text(key),
            None => to.text("what the transaction read"),
        };
        match self.collection.as_deref().unwrap_or_default() {
            "" => to,
            name => to.text(" of collection \"").text(name).text("\""),
        }
    }

    /// The message with the key as it is, as far as it is printable.
    pub(super) fn shown(&self) -> String {
        let key = self.key.as_deref().unwrap_or_default();
        let mut text = Message::default();
        for byte in key.iter().take(SHOWN_BYTES) {
            text.0.extend(byte.escape_ascii().map(char::from));
        }
        if key.len() > SHOWN_BYTES {
            text.text("…");
        }
        self.message(&text.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_numbers_and_keys() {
        let mut corruption = Corruption::new("a cell is wrong");
        corruption.unit = Some(u64::MAX);
        corruption.collection = Some("mail".to_owned());
        corruption.key_range = Some((vec![0, 0xa7], Some(vec![0xff; 33])));
        let until = "ff".repeat(32);
        assert_eq!(
            corruption.to_string(),
            format!(
                "corrupt database: a cell is wrong, unit 18446744073709551615, collection \"mail\", keys from 0x00a7 to 0x{until}..; \
                 the file was not changed"
            )
        );
        corruption.key_range = Some((Vec::new(), None));
        assert!(corruption.to_string().contains(", keys from 0x to the end; "));
        assert_eq!(
            Error::key_too_large(2000, 1012).to_string(),
            "the key has 2000 bytes, at most 1012 are allowed"
        );
    }

    #[test]
    fn conflicts_show_printable_keys() {
        let changed =
            |collection, key: Option<&[u8]>| Error::conflict(collection, key, ConflictReason::Changed).to_string();
        let ending = "was changed by another commit; run the transaction again";
        assert_eq!(
            changed(Some("mail"), Some(b"a\n\xff")),
            format!("key a\\n\\xff of collection \"mail\" {ending}")
        );
        assert_eq!(
            changed(None, Some(&[b'x'; 33])),
            format!("key {}… {ending}", "x".repeat(32))
        );
        assert_eq!(changed(None, None), format!("what the transaction read {ending}"));
        let reason = ConflictReason::Version {
            expected: None,
            found: Some(7),
        };
        assert_eq!(
            Error::conflict(Some("mail"), Some(b"k"), reason).to_string(),
            "key k of collection \"mail\" has version 7, the check expects no entry; read it and try again"
        );
    }
}
