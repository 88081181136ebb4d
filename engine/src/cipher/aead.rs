//! XChaCha20-Poly1305 with random nonces.

use std::fmt;
use std::sync::{Arc, PoisonError};

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use super::key::{Key, Random, WRONG_KEY};
use super::{Domain, KEY_BYTES, NONCE_BYTES, OVERHEAD_BYTES, TAG_BYTES};
use crate::error::{Error, Result};
use crate::locks::Mutex;

/// Length of a data key sealed under the user's key.
const WRAPPED_BYTES: usize = OVERHEAD_BYTES + KEY_BYTES;
/// Maximum length of the envelope that a host stores beside the sealed data key.
const ENVELOPE_BYTES: usize = 128;
/// Maximum length of a caller's part of the associated data.
const CONTEXT_BYTES: usize = 456;

pub(crate) fn not_encrypted() -> Error {
    Error::NotEncrypted
}

/// A data key sealed under a user's key, as the superblock has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WrappedKey {
    wrapped: [u8; WRAPPED_BYTES],
    /// How the user's key is derived; see [`Key`].
    envelope: Vec<u8>,
}

impl WrappedKey {
    /// Makes a data key for a new database.
    pub(crate) fn create(key: &Key, database_id: u128) -> Result<(Self, Cipher)> {
        let mut data_key = Zeroizing::new([0; KEY_BYTES]);
        (key.random)(&mut *data_key);
        let wrapped = Self::around(&data_key, key, database_id)?;
        Ok((wrapped, Cipher::of(Sealer::new(&data_key, key.random, database_id))))
    }

    /// Makes another data key for blocks of generation `from` and later. Also returns the key it
    /// replaces, and the cipher that opens under both.
    pub(crate) fn renew(
        cipher: &Cipher,
        key: &Key,
        database_id: u128,
        from: u64,
    ) -> Result<(Self, PreviousKey, Cipher)> {
        let (wrapped, new) = Self::create(key, database_id)?;
        let previous = PreviousKey::create(cipher, &new, from).ok_or(Error::NotEncrypted)?;
        Ok((wrapped, previous, cipher.followed_by(from, &new)))
    }

    fn around(data_key: &[u8; KEY_BYTES], key: &Key, database_id: u128) -> Result<Self> {
        let (bytes, envelope) = key.for_wrapping()?;
        let mut wrapped = [0; WRAPPED_BYTES];
        wrapped[NONCE_BYTES..NONCE_BYTES + KEY_BYTES].copy_from_slice(data_key);
        let wrapper = Sealer::new(&bytes, key.random, database_id);
        wrapper.seal(Domain::DataKey, &[&envelope], &mut wrapped);
        Ok(Self { wrapped, envelope })
    }

    /// Opens with the user's key.
    ///
    /// # Errors
    /// [`Error::WrongKey`] if it is another one, [`Error::Io`] if it cannot be derived.
    pub(crate) fn unlock(&self, key: &Key, database_id: u128) -> Result<Cipher> {
        let mut wrapped = Zeroizing::new(self.wrapped);
        let wrapper = Sealer::new(&*key.for_envelope(&self.envelope)?, key.random, database_id);
        if !wrapper.open(Domain::DataKey, &[&self.envelope], &mut *wrapped) {
            return Err(WRONG_KEY);
        }
        let data_key = wrapped[NONCE_BYTES..].first_chunk().expect("it is that long");
        Ok(Cipher::of(Sealer::new(data_key, key.random, database_id)))
    }

    /// The same data key under another user's key. Without the data key it stays as it is.
    pub(crate) fn rewrapped(&self, cipher: &Cipher, key: &Key, database_id: u128) -> Result<Self> {
        match cipher.newest() {
            Some(sealer) => Self::around(&sealer.key, key, database_id),
            None => Ok(self.clone()),
        }
    }

    /// Encodes it: length of the envelope u8, two zeros, the sealed data key, the envelope.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.envelope.len() as u8, 0, 0];
        bytes.extend_from_slice(&self.wrapped);
        bytes.extend_from_slice(&self.envelope);
        bytes
    }

    /// Decodes the output of [`encode`](Self::encode), with zeros after it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<3>()?;
        let (wrapped, rest) = rest.split_first_chunk()?;
        let len = usize::from(head[0]);
        if len > ENVELOPE_BYTES {
            return None;
        }
        Some(Self {
            wrapped: *wrapped,
            envelope: rest.get(..len)?.to_vec(),
        })
    }
}

/// The data key that a re-encryption replaces, sealed under the new one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PreviousKey {
    sealed: [u8; WRAPPED_BYTES],
    /// Blocks of this generation and later are sealed under the new key.
    pub(crate) from: u64,
}

impl PreviousKey {
    pub(crate) const BYTES: usize = WRAPPED_BYTES + 8;

    fn create(old: &Cipher, new: &Cipher, from: u64) -> Option<Self> {
        let mut sealed = [0; WRAPPED_BYTES];
        sealed[NONCE_BYTES..NONCE_BYTES + KEY_BYTES].copy_from_slice(&*old.newest()?.key);
        new.seal(Domain::PreviousKey, &[&from.to_le_bytes()], &mut sealed);
        Some(Self { sealed, from })
    }

    /// Encodes it: the sealed key, then the generation.
    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..WRAPPED_BYTES].copy_from_slice(&self.sealed);
        bytes[WRAPPED_BYTES..].copy_from_slice(&self.from.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let (sealed, from) = bytes.split_at(WRAPPED_BYTES);
        Self {
            sealed: *sealed.first_chunk().expect("split there"),
            from: u64::from_le_bytes(*from.first_chunk().expect("eight bytes are left")),
        }
    }

    /// Unlocks it with the new key; returns the cipher that opens under both.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it was not sealed under the new key.
    pub(crate) fn unlock(&self, new: &Cipher) -> Result<Cipher> {
        let damaged = || Error::corrupt("the data key that a re-encryption replaces is damaged");
        let newest = new.newest().ok_or_else(damaged)?;
        let mut sealed = Zeroizing::new(self.sealed);
        if !newest.open(Domain::PreviousKey, &[&self.from.to_le_bytes()], &mut *sealed) {
            return Err(damaged());
        }
        let data_key = sealed[NONCE_BYTES..].first_chunk().expect("it is that long");
        let previous = Cipher::of(Sealer::new(data_key, newest.random, newest.database_id));
        Ok(previous.followed_by(self.from, new))
    }
}

/// Seals and opens under the database's data keys; by default it is off, and does neither.
#[derive(Clone, Default)]
pub(crate) struct Cipher(Option<Arc<Keys>>);

/// By the first generation whose blocks are sealed under them, ascending. There is at least one.
type Keys = Vec<(u64, Arc<Sealer>)>;

impl Cipher {
    fn of(sealer: Sealer) -> Self {
        Self(Some(Arc::new(vec![(0, Arc::new(sealer))])))
    }

    fn newest(&self) -> Option<&Arc<Sealer>> {
        self.0.as_ref()?.last().map(|(_, sealer)| sealer)
    }

    /// The cipher of blocks of a generation.
    fn of_generation(&self, generation: u64) -> Option<&Sealer> {
        let mut keys = self.0.as_ref()?.iter().rev();
        keys.find(|(from, _)| *from <= generation).map(|(_, sealer)| &**sealer)
    }

    /// These keys, and that of `newer` for blocks of generation `from` and later.
    fn followed_by(&self, from: u64, newer: &Self) -> Self {
        let mut keys = self.0.as_deref().cloned().unwrap_or_default();
        keys.extend(newer.newest().map(|sealer| (from, Arc::clone(sealer))));
        Self(Some(Arc::new(keys)))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Bytes that sealing adds; 0 if it is off.
    pub(crate) fn adds(&self, bytes: usize) -> usize {
        if self.is_on() { bytes } else { 0 }
    }

    /// Seals in place, under the newest key: `buffer` has the text between room for nonce and tag.
    pub(crate) fn seal(&self, domain: Domain, context: &[&[u8]], buffer: &mut [u8]) {
        if let Some(sealer) = self.newest() {
            sealer.seal(domain, context, buffer);
        }
    }

    /// As [`seal`](Self::seal), a block of a generation.
    pub(crate) fn seal_block(&self, generation: u64, context: &[&[u8]], buffer: &mut [u8]) {
        if let Some(sealer) = self.of_generation(generation) {
            sealer.seal(Domain::Block, context, buffer);
        }
    }

    /// Opens in place; the text is then where [`seal`](Self::seal) wants it. `false` if the bytes,
    /// the key or the associated data are not those of sealing; the text is then undefined.
    #[must_use]
    pub(crate) fn open(&self, domain: Domain, context: &[&[u8]], buffer: &mut [u8]) -> bool {
        self.newest().is_some_and(|sealer| sealer.open(domain, context, buffer))
    }

    /// As [`open`](Self::open), a block of a generation.
    #[must_use]
    pub(crate) fn open_block(&self, generation: u64, context: &[&[u8]], buffer: &mut [u8]) -> bool {
        self.of_generation(generation)
            .is_some_and(|sealer| sealer.open(Domain::Block, context, buffer))
    }

    /// A random number that tells a block from all others its parent might have referred to.
    pub(crate) fn stamp(&self) -> u32 {
        let mut bytes = [0; 4];
        if let Some(sealer) = self.newest() {
            (sealer.random)(&mut bytes);
        }
        u32::from_le_bytes(bytes)
    }
}

/// The cipher of an open file, which a re-encryption replaces.
pub(crate) struct CurrentCipher {
    is_on: bool,
    cipher: Mutex<Cipher>,
}

impl CurrentCipher {
    pub(crate) fn new(cipher: Cipher) -> Self {
        Self {
            is_on: cipher.is_on(),
            cipher: Mutex::new(cipher),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(crate) fn get(&self) -> Cipher {
        if !self.is_on {
            return Cipher::default();
        }
        self.cipher.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, cipher: Cipher) {
        *self.cipher.lock().unwrap_or_else(PoisonError::into_inner) = cipher;
    }
}

struct Sealer {
    aead: XChaCha20Poly1305,
    key: Zeroizing<[u8; KEY_BYTES]>,
    random: Random,
    database_id: u128,
}

/// Associated data in place.
struct Associated {
    bytes: [u8; 17 + CONTEXT_BYTES],
    len: usize,
}

impl Sealer {
    fn new(key: &[u8; KEY_BYTES], random: Random, database_id: u128) -> Self {
        Self {
            aead: XChaCha20Poly1305::new(key.into()),
            key: Zeroizing::new(*key),
            random,
            database_id,
        }
    }

    fn associate(&self, domain: Domain, context: &[&[u8]]) -> Associated {
        let mut bytes = [0; 17 + CONTEXT_BYTES];
        bytes[0] = domain as u8;
        bytes[1..17].copy_from_slice(&self.database_id.to_le_bytes());
        let mut len = 17;
        for part in context {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        Associated { bytes, len }
    }

    fn seal(&self, domain: Domain, context: &[&[u8]], buffer: &mut [u8]) {
        let associated = self.associate(domain, context);
        let (nonce, rest) = buffer.split_at_mut(NONCE_BYTES);
        let (text, tag) = rest.split_at_mut(rest.len() - TAG_BYTES);
        (self.random)(nonce);
        let nonce: &[u8; NONCE_BYTES] = nonce.first_chunk().expect("split there");
        let sealed = self.aead.encrypt_inout_detached(
            &XNonce::from(*nonce),
            &associated.bytes[..associated.len],
            InOutBuf::from(text),
        );
        tag.copy_from_slice(&sealed.expect("no text has 256 GiB"));
    }

    fn open(&self, domain: Domain, context: &[&[u8]], buffer: &mut [u8]) -> bool {
        let associated = self.associate(domain, context);
        let Some((nonce, rest)) = buffer.split_first_chunk_mut::<NONCE_BYTES>() else {
            return false;
        };
        let Some((text, tag)) = rest.split_last_chunk_mut::<TAG_BYTES>() else {
            return false;
        };
        let opened = self.aead.decrypt_inout_detached(
            &XNonce::from(*nonce),
            &associated.bytes[..associated.len],
            InOutBuf::from(text),
            &Tag::from(*tag),
        );
        opened.is_ok()
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    /// Appendix A.3.1 of draft-irtf-cfrg-xchacha-03.
    #[test]
    fn the_cipher_gives_the_published_answer() {
        let key: [u8; 32] = std::array::from_fn(|at| 0x80 + at as u8);
        let nonce = bytes("404142434445464748494a4b4c4d4e4f5051525354555657");
        let associated = bytes("50515253c0c1c2c3c4c5c6c7");
        let mut text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.".to_vec();
        let nonce: [u8; 24] = nonce.try_into().expect("24 bytes");
        let tag = XChaCha20Poly1305::new(&key.into())
            .encrypt_inout_detached(&nonce.into(), &associated, InOutBuf::from(&mut text[..]))
            .expect("it is short");
        assert_eq!(text[..16], bytes("bd6d179d3e83d43b9576579493c0e939")[..]);
        assert_eq!(tag[..], bytes("c0875924c1c7987947deafd8780acf49")[..]);
    }

    fn cipher() -> Cipher {
        let (_, cipher) = WrappedKey::create(&Key::new([7; 32]), 5).expect("a key needs no memory");
        cipher
    }

    fn sealed(cipher: &Cipher) -> Vec<u8> {
        let mut buffer = vec![0; 24 + 5 + 16];
        buffer[24..29].copy_from_slice(b"plain");
        cipher.seal(Domain::Block, &[b"at ", b"7"], &mut buffer);
        buffer
    }

    #[test]
    fn every_flipped_bit_and_another_context_are_refused() {
        let cipher = cipher();
        let buffer = sealed(&cipher);
        let mut whole = buffer.clone();
        assert!(cipher.open(Domain::Block, &[b"at 7"], &mut whole));
        assert_eq!(&whole[24..29], b"plain");
        for bit in 0..buffer.len() * 8 {
            let mut damaged = buffer.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!cipher.open(Domain::Block, &[b"at 7"], &mut damaged), "bit {bit}");
        }
        assert!(!cipher.open(Domain::Block, &[b"at 8"], &mut buffer.clone()));
        assert!(!cipher.open(Domain::LogRecord, &[b"at 7"], &mut buffer.clone()));
        assert!(!cipher.open(Domain::Block, &[b"at 7"], &mut buffer[..39].to_vec()));
        let (_, other) = WrappedKey::create(&Key::new([7; 32]), 5).expect("a key needs no memory");
        assert!(!other.open(Domain::Block, &[b"at 7"], &mut buffer.clone()));
    }

    #[test]
    fn the_same_text_is_never_sealed_alike() {
        let cipher = cipher();
        assert_ne!(sealed(&cipher), sealed(&cipher));
    }

    #[test]
    fn a_wrapped_key_opens_with_its_key_in_its_database_only() {
        let (wrapped, cipher) = WrappedKey::create(&Key::new([7; 32]), 5).expect("a key needs no memory");
        let mut buffer = sealed(&cipher);
        let again = WrappedKey::decode(&wrapped.encode()).expect("it was encoded");
        assert_eq!(again, wrapped);
        assert!(again.unlock(&Key::new([8; 32]), 5).is_err());
        assert!(again.unlock(&Key::new([7; 32]), 6).is_err());
        let opened = again.unlock(&Key::new([7; 32]), 5).expect("it is the key");
        assert!(opened.open(Domain::Block, &[b"at 7"], &mut buffer));
        assert_eq!(format!("{:?}{cipher:?}", Key::new([7; 32])), "Key(..)Cipher(..)");
    }
}
