//! What stands in for encryption in builds without it.

use super::Domain;

/// The key of an encrypted database. Without the feature `encryption` there is none.
#[derive(Clone, Debug)]
pub enum Key {}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WrappedKey {}

#[derive(Debug)]
pub(crate) enum Cipher {}

impl WrappedKey {
    pub(crate) fn create(key: &Key, _: u128) -> (Self, Cipher) {
        match *key {}
    }

    pub(crate) fn unlock(&self, _: &Key, _: u128) -> Option<Cipher> {
        match *self {}
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        match *self {}
    }

    pub(crate) fn decode(_: &[u8]) -> Option<Self> {
        None
    }
}

impl Cipher {
    pub(crate) fn seal(&self, _: Domain, _: &[&[u8]], _: &mut [u8]) {
        match *self {}
    }

    pub(crate) fn open(&self, _: Domain, _: &[&[u8]], _: &mut [u8]) -> bool {
        match *self {}
    }

    pub(crate) fn stamp(&self) -> u32 {
        match *self {}
    }
}
