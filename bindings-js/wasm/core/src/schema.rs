//! Schema versions: which clients may use the database in the version that its data has.
//!
//! A client states the version for which it was written when it joins. The first one with a newer
//! version than the database upgrades the data, in commits of its own; until it is done, requests
//! of all others are refused, and afterwards those of clients with an older version. The version,
//! and whether an upgrade was begun, are records of an ordinary collection: backups and recovery
//! keep them, and each commit of an upgrade changes them together with the data. What is kept here
//! only spares others a conflict.

use mangrove_engine::{Database, Error, Result};

use crate::client::Client;
use crate::protocol::{
    STANDING_CURRENT, STANDING_INTERRUPTED, STANDING_NEWER, STANDING_UPGRADES, STANDING_WAITS, Writer,
};
use crate::request::Request;

/// The collection, in the package's default codecs.
const COLLECTION: &str = "mangrove:schema";
/// `"version"`: a number. Without it the version is 0.
const VERSION: &[u8] = b"\x30version";
/// `"upgrade"`: exists while an upgrade is incomplete.
const UPGRADE: &[u8] = b"\x30upgrade";

/// What a client has stated, kept across sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Joined {
    pub(crate) version: u64,
    /// Whether it upgrades the database to that version.
    pub(crate) upgrades: bool,
}

/// The version of the database, and who upgrades it.
#[derive(Default)]
pub(crate) struct Schema {
    version: u64,
    is_incomplete: bool,
    /// Number of the client that upgrades, and to which version.
    upgrade: Option<(u64, u64)>,
    /// How far the upgrade is, as the client reports it.
    done: u64,
    total: u64,
}

/// What a client may request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    /// Everything.
    Open,
    /// Reads: the client has no version, and another one upgrades.
    Reads,
    /// Nothing.
    Shut,
}

impl Gate {
    pub(crate) fn admits(self, request: &Request<'_>) -> bool {
        match self {
            Self::Open => true,
            Self::Reads => !request.may_write(),
            Self::Shut => request.only_closes(),
        }
    }

    /// Writes the reply of a request that is not admitted.
    pub(crate) fn refuse(out: &mut Writer) {
        out.refusal(
            "KV_VERSION_CHANGED",
            "the database was upgraded, or is being upgraded, to another schema version than this handle was opened \
             with; reload the page, or open the database again",
        );
    }
}

impl Schema {
    /// Reads the version of the database.
    pub(crate) fn reload(&mut self, database: &Database) -> Result<()> {
        let collection = database.snapshot().collection(COLLECTION);
        (self.version, self.is_incomplete) = match &collection {
            None => (0, false),
            Some(records) => {
                let version = records.get(VERSION)?.map_or(Some(0), |bytes| number(&bytes));
                let version = version.ok_or_else(|| Error::InvalidArgument {
                    what: "the schema version in collection \"mangrove:schema\" is not a number; restore it".into(),
                })?;
                (version, records.contains(UPGRADE)?)
            }
        };
        Ok(())
    }

    /// Returns what a client may do.
    pub(crate) fn gate(&self, client: u64, joined: Option<Joined>) -> Gate {
        let upgrader = self.upgrade.map(|(upgrader, _)| upgrader);
        let Some(Joined { version, .. }) = joined else {
            return if upgrader.is_none() { Gate::Open } else { Gate::Reads };
        };
        let is_current = upgrader.is_none() && !self.is_incomplete && version == self.version;
        if is_current || upgrader == Some(client) {
            Gate::Open
        } else {
            Gate::Shut
        }
    }

    /// Lets a client join and writes how it stands. Returns what it has stated from now on.
    pub(crate) fn join(
        &mut self,
        database: &Database,
        id: u64,
        client: &Client,
        version: u64,
        out: &mut Writer,
    ) -> Result<Joined> {
        if self.upgrade.is_none() {
            self.reload(database)?;
        }
        let standing = match self.upgrade {
            Some((upgrader, _)) if upgrader != id => STANDING_WAITS,
            _ if version < self.version => STANDING_NEWER,
            _ if version > self.version => {
                client.check_writable()?;
                self.upgrade = Some((id, version));
                (self.done, self.total) = (0, 0);
                STANDING_UPGRADES
            }
            _ if self.is_incomplete => STANDING_INTERRUPTED,
            _ => STANDING_CURRENT,
        };
        out.begin();
        out.raw(&[standing]);
        out.uv(self.version);
        out.uv(self.upgrade.map_or(self.version, |(_, to)| to));
        out.uv(self.done);
        out.uv(self.total);
        Ok(Joined {
            version,
            upgrades: standing == STANDING_UPGRADES,
        })
    }

    /// Continues with a client that was served elsewhere.
    pub(crate) fn rejoin(&mut self, database: &Database, id: u64, joined: Joined) -> Result<()> {
        if self.upgrade.is_none() {
            self.reload(database)?;
            if joined.upgrades && joined.version > self.version {
                self.upgrade = Some((id, joined.version));
            }
        }
        Ok(())
    }

    /// Notes how far the client's upgrade is.
    pub(crate) fn report(&mut self, id: u64, done: u64, total: u64) {
        if self.upgrade.is_some_and(|(upgrader, _)| upgrader == id) {
            (self.done, self.total) = (done, total);
        }
    }

    /// Ends the client's upgrade, complete or not.
    pub(crate) fn end(&mut self, database: Option<&Database>, id: u64) -> Result<()> {
        if self.upgrade.is_none_or(|(upgrader, _)| upgrader != id) {
            return Ok(());
        }
        self.upgrade = None;
        // Until it is known how far the upgrade came, nobody may use what it has changed.
        self.is_incomplete = true;
        database.map_or(Ok(()), |database| self.reload(database))
    }
}

/// Decodes a whole number below 2^32 in CBOR.
fn number(bytes: &[u8]) -> Option<u64> {
    match *bytes {
        [small @ 0..24] => Some(u64::from(small)),
        [24, value] => Some(u64::from(value)),
        [25, a, b] => Some(u64::from(u16::from_be_bytes([a, b]))),
        [26, a, b, c, d] => Some(u64::from(u32::from_be_bytes([a, b, c, d]))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_decoded_from_the_default_codec() {
        for (bytes, expected) in [
            (&[1_u8][..], Some(1)),
            (&[23], Some(23)),
            (&[24, 24], Some(24)),
            (&[25, 1, 44], Some(300)),
            (&[26, 0, 1, 17, 112], Some(70_000)),
            (&[27, 0, 0, 0, 1, 0, 0, 0, 0], None),
            (&[0x61, b'1'], None),
            (&[], None),
        ] {
            assert_eq!(number(bytes), expected, "{bytes:?}");
        }
    }
}
