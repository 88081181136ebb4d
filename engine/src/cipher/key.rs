//! The user's key: 32 bytes, or a passphrase that they are derived from.

use std::fmt;
use std::sync::{Arc, PoisonError};

use argon2::{Algorithm, Argon2, Params, Version};
use zeroize::Zeroizing;

use super::KEY_BYTES;
use crate::error::{Error, Result};
use crate::locks::Mutex;

/// Length of the salt of a passphrase.
const SALT_BYTES: usize = 16;
/// Kind of an envelope: the key is derived by Argon2id, version 19, with one lane.
const ARGON2ID: u8 = 1;
/// Kind, memory, passes and salt.
const ARGON2ID_BYTES: usize = 9 + SALT_BYTES;
/// The most memory that a file may ask for, since nothing proves a cost to be the user's before it is paid: 1 GiB.
const MAX_MEMORY_KIB: u32 = 1 << 20;
const MAX_PASSES: u32 = 1 << 10;

pub(super) const WRONG_KEY: Error = Error::WrongKey { is_missing: false };

/// Fills a buffer from a cryptographically secure generator.
pub(super) type Random = fn(&mut [u8]);

pub(super) type KeyBytes = Zeroizing<[u8; KEY_BYTES]>;

/// The key of an encrypted database. Erased from memory when it is dropped.
#[derive(Clone)]
pub struct Key {
    secret: Secret,
    pub(super) random: Random,
}

#[derive(Clone)]
enum Secret {
    Bytes(KeyBytes),
    Passphrase(Arc<Passphrase>),
}

struct Passphrase {
    text: Zeroizing<Vec<u8>>,
    cost: PassphraseCost,
    /// The envelope for which a key was derived last, and the key.
    derived: Mutex<Option<(Vec<u8>, KeyBytes)>>,
}

/// The cost of deriving a key from a passphrase by Argon2id (RFC 9106), with one lane. The
/// superblock stores it, so it can be chosen anew whenever the key is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassphraseCost {
    /// Memory in KiB: 8 to 1,048,576. Default 19,456.
    pub memory_kib: u32,
    /// Passes over the memory: 1 to 1,024. Default 2.
    pub passes: u32,
}

impl Default for PassphraseCost {
    /// The smallest cost that OWASP recommends, which a phone can pay as well.
    fn default() -> Self {
        Self {
            memory_kib: 19 * 1024,
            passes: 2,
        }
    }
}

/// Fills a buffer from the system's cryptographic generator.
///
/// # Panics
/// If the system has none.
#[cfg(not(target_family = "wasm"))]
pub fn system_random(buffer: &mut [u8]) {
    // A nonce that is not random would give away data: nothing can go on without one.
    getrandom::fill(buffer).expect("the system has a generator of random bytes");
}

impl Key {
    /// Takes 32 secret bytes from a secure generator or a key derivation, not a password. Nonces and
    /// data keys come from the system's generator.
    ///
    /// # Panics
    /// Later, wherever a nonce is needed, if the system has no generator.
    #[cfg(not(target_family = "wasm"))]
    #[must_use]
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self::with_random(bytes, system_random)
    }

    /// Takes a key and the host's generator, which must be cryptographically secure: if it ever
    /// repeats 24 bytes, encryption is broken.
    #[must_use]
    pub fn with_random(bytes: [u8; KEY_BYTES], random: fn(&mut [u8])) -> Self {
        Self {
            secret: Secret::Bytes(Zeroizing::new(bytes)),
            random,
        }
    }

    /// Takes a passphrase. Opening derives the key with the salt and the cost that the database
    /// stores; `cost` is for a new database, and for a changed key.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the passphrase is empty or the cost out of range.
    #[cfg(not(target_family = "wasm"))]
    pub fn passphrase(text: &[u8], cost: PassphraseCost) -> Result<Self> {
        Self::passphrase_with_random(text, cost, system_random)
    }

    /// As `passphrase`, with the host's generator; see [`with_random`](Self::with_random).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the passphrase is empty or the cost out of range.
    pub fn passphrase_with_random(text: &[u8], cost: PassphraseCost, random: fn(&mut [u8])) -> Result<Self> {
        let invalid = |what: &str| Err(Error::InvalidArgument { what: what.into() });
        if text.is_empty() {
            return invalid("the passphrase must not be empty");
        }
        if !cost.is_valid() {
            return invalid("memory_kib must be from 8 to 1048576, and passes from 1 to 1024");
        }
        let passphrase = Passphrase {
            text: Zeroizing::new(text.to_vec()),
            cost,
            derived: Mutex::new(None),
        };
        Ok(Self {
            secret: Secret::Passphrase(Arc::new(passphrase)),
            random,
        })
    }

    /// Returns 32 bytes for a data key that is yet to be wrapped, and the envelope that leads back to
    /// them.
    pub(super) fn for_wrapping(&self) -> Result<(KeyBytes, Vec<u8>)> {
        match &self.secret {
            Secret::Bytes(bytes) => Ok((bytes.clone(), Vec::new())),
            Secret::Passphrase(passphrase) => {
                let mut salt = [0; SALT_BYTES];
                (self.random)(&mut salt);
                let envelope = encode(passphrase.cost, &salt);
                Ok((passphrase.derive(&envelope)?, envelope))
            }
        }
    }

    /// Returns the 32 bytes that an envelope leads to.
    ///
    /// # Errors
    /// [`Error::WrongKey`] if it is for another kind of key, [`Error::Io`] if there is too little
    /// memory.
    pub(super) fn for_envelope(&self, envelope: &[u8]) -> Result<KeyBytes> {
        match &self.secret {
            Secret::Bytes(bytes) if envelope.is_empty() => Ok(bytes.clone()),
            Secret::Passphrase(passphrase) => passphrase.derive(envelope),
            Secret::Bytes(_) => Err(WRONG_KEY),
        }
    }
}

impl Passphrase {
    fn derive(&self, envelope: &[u8]) -> Result<KeyBytes> {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, key)) = &*derived
            && of == envelope
        {
            return Ok(key.clone());
        }
        let (cost, salt) = decode(envelope).ok_or(WRONG_KEY)?;
        let mut key = KeyBytes::default();
        let failed = |_| Error::io("deriving the key of the database", "there is too little memory");
        let params = Params::new(cost.memory_kib, cost.passes, 1, Some(KEY_BYTES)).map_err(failed)?;
        derivation(params)
            .hash_password_into(&self.text, salt, &mut *key)
            .map_err(failed)?;
        *derived = Some((envelope.to_vec(), key.clone()));
        Ok(key)
    }
}

fn derivation(params: Params) -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

impl PassphraseCost {
    fn is_valid(self) -> bool {
        (8..=MAX_MEMORY_KIB).contains(&self.memory_kib) && (1..=MAX_PASSES).contains(&self.passes)
    }
}

/// Encodes how a key is derived: kind u8, memory u32, passes u32, salt.
fn encode(cost: PassphraseCost, salt: &[u8; SALT_BYTES]) -> Vec<u8> {
    let mut envelope = vec![ARGON2ID];
    envelope.extend_from_slice(&cost.memory_kib.to_le_bytes());
    envelope.extend_from_slice(&cost.passes.to_le_bytes());
    envelope.extend_from_slice(salt);
    envelope
}

fn decode(envelope: &[u8]) -> Option<(PassphraseCost, &[u8])> {
    if envelope.len() != ARGON2ID_BYTES || envelope[0] != ARGON2ID {
        return None;
    }
    let number = |at: usize| envelope[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let cost = PassphraseCost {
        memory_kib: number(1)?,
        passes: number(5)?,
    };
    cost.is_valid().then_some((cost, &envelope[9..]))
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: PassphraseCost = PassphraseCost {
        memory_kib: 32,
        passes: 3,
    };

    /// From the tests of the reference implementation: Argon2id, version 19, 64 MiB, 2 passes, 1 lane.
    /// Its salt has 8 bytes, an envelope's 16.
    #[test]
    fn the_derivation_gives_the_published_answer() {
        let params = Params::new(1 << 16, 2, 1, Some(KEY_BYTES)).expect("it is valid");
        let mut key = [0; KEY_BYTES];
        derivation(params)
            .hash_password_into(b"password", b"somesalt", &mut key)
            .expect("there is memory");
        let published = "09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7";
        let bytes = |at: usize| u8::from_str_radix(&published[2 * at..][..2], 16).expect("hexadecimal");
        assert_eq!(key, std::array::from_fn(bytes));
    }

    #[test]
    fn a_derived_key_depends_on_the_envelope_and_the_passphrase() {
        let key = Key::passphrase(b"correct horse", CHEAP).expect("it is valid");
        let (first, envelope) = key.for_wrapping().expect("there is memory");
        let (second, other) = key.for_wrapping().expect("there is memory");
        assert_ne!(envelope, other);
        assert_ne!(first, second);
        assert_eq!(key.for_envelope(&envelope).expect("it is its own"), first);
        let wrong = Key::passphrase(b"correct horsf", CHEAP).expect("it is valid");
        assert_ne!(wrong.for_envelope(&envelope).expect("it is well-formed"), first);
    }

    #[test]
    fn keys_and_passphrases_do_not_stand_in_for_each_other() {
        let passphrase = Key::passphrase(b"p", CHEAP).expect("it is valid");
        let (_, envelope) = passphrase.for_wrapping().expect("there is memory");
        let wrong = |result: Result<KeyBytes>| matches!(result, Err(Error::WrongKey { is_missing: false }));
        assert!(wrong(Key::new([1; 32]).for_envelope(&envelope)));
        assert!(wrong(passphrase.for_envelope(&[])));
    }

    #[test]
    fn costs_out_of_range_are_refused() {
        for (memory_kib, passes) in [(7, 1), (8, 0), (MAX_MEMORY_KIB + 1, 1), (8, MAX_PASSES + 1)] {
            let cost = PassphraseCost { memory_kib, passes };
            assert!(matches!(
                Key::passphrase(b"p", cost),
                Err(Error::InvalidArgument { .. })
            ));
            let passphrase = Key::passphrase(b"p", CHEAP).expect("it is valid");
            let envelope = encode(cost, &[0; SALT_BYTES]);
            assert!(passphrase.for_envelope(&envelope).is_err());
        }
        assert!(matches!(
            Key::passphrase(b"", CHEAP),
            Err(Error::InvalidArgument { .. })
        ));
    }
}
