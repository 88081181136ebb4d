//! A stub of the cipher, for builds without encryption.

use super::Domain;
use crate::error::{Error, Result};

/// The key of an encrypted database. Without the feature `encryption` there is none.
#[derive(Clone, Debug)]
pub enum Key {}

/// No key, hence never called.
pub(crate) fn not_encrypted() -> Error {
    Error::ReadOnly
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WrappedKey {}

/// Always off.
#[derive(Clone, Default, Debug)]
pub(crate) struct Cipher(());

/// Always off.
pub(crate) struct CurrentCipher(());

#[allow(clippy::unused_self, reason = "as where there is encryption")]
impl CurrentCipher {
    pub(crate) fn new(_: Cipher) -> Self {
        Self(())
    }

    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn get(&self) -> Cipher {
        Cipher(())
    }
}

impl WrappedKey {
    pub(crate) fn create(key: &Key, _: u128) -> Result<(Self, Cipher)> {
        match *key {}
    }

    pub(crate) fn unlock(&self, _: &Key, _: u128) -> Result<Cipher> {
        match *self {}
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        match *self {}
    }

    pub(crate) fn decode(_: &[u8]) -> Option<Self> {
        None
    }
}

#[allow(clippy::unused_self, reason = "as where there is encryption")]
impl Cipher {
    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn adds(&self, _: usize) -> usize {
        0
    }

    pub(crate) fn seal(&self, _: Domain, _: &[&[u8]], _: &mut [u8]) {}

    pub(crate) fn seal_block(&self, _: u64, _: &[&[u8]], _: &mut [u8]) {}

    pub(crate) fn open(&self, _: Domain, _: &[&[u8]], _: &mut [u8]) -> bool {
        false
    }

    pub(crate) fn open_block(&self, _: u64, _: &[&[u8]], _: &mut [u8]) -> bool {
        false
    }

    pub(crate) fn stamp(&self) -> u32 {
        0
    }
}
