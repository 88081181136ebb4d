//! Reading an untrusted stream.

use std::io::{ErrorKind, Read};

use super::encrypted::{FrameCipher, WRAPPED_BYTES};
use super::frame::{self, FrameInfo, FrameKind, Totals};
use super::header::{self, Header};
use crate::block::lz4;
use crate::cipher::Key;
use crate::error::{Error, Result};
use crate::node::cell::get_varint;

/// Reads the data of a stream regardless of its frames. Memory is bounded by two frames.
pub(crate) struct FrameReader<'a> {
    from: &'a mut dyn Read,
    data: Vec<u8>,
    /// First byte of `data` not yet consumed.
    at: usize,
    previous_crc: u32,
    cipher: Option<FrameCipher>,
    /// Totals so far, except `items`.
    totals: Totals,
    end: Option<Totals>,
    /// Offset of the current frame in the stream.
    frame_offset: u64,
    /// Bytes of the stream read so far.
    read: u64,
}

/// Fills `into` as far as the stream reaches; returns how many bytes.
fn fill(from: &mut dyn Read, into: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Error::io("reading the backup", error.to_string()));
            }
        }
    }
    Ok(filled)
}

impl<'a> FrameReader<'a> {
    /// Reads the header of a stream. One of an encrypted database needs its key.
    pub(crate) fn new(from: &'a mut dyn Read, key: Option<&Key>) -> Result<(Header, Self)> {
        let mut bytes = [0; header::HEADER_BYTES];
        let filled = fill(from, &mut bytes)?;
        if !Header::is_ours(&bytes[..filled]) {
            return Err(Error::NotADatabase {
                file: "the stream to restore from".into(),
            });
        }
        if filled < bytes.len() {
            return Err(truncated(filled as u64));
        }
        let (header, is_sealed) = Header::decode(&bytes)?;
        let mut reader = Self {
            from,
            data: Vec::new(),
            at: 0,
            previous_crc: frame::crc_at_end(&bytes),
            cipher: None,
            totals: Totals::default(),
            end: None,
            frame_offset: bytes.len() as u64,
            read: bytes.len() as u64,
        };
        if is_sealed {
            let mut wrapped = [0; WRAPPED_BYTES];
            reader.fill(&mut wrapped)?;
            reader.frame_offset = reader.read;
            reader.cipher = Some(FrameCipher::open(&wrapped, key, &header, &bytes)?);
        }
        Ok((header, reader))
    }

    /// Reports damage in the current frame.
    pub(crate) fn damaged(&self, what: impl Into<crate::error::Text>) -> Error {
        Error::corrupt_backup(what, self.frame_offset)
    }

    /// Number of frames read.
    pub(crate) fn frames(&self) -> u64 {
        self.totals.frames
    }

    /// Bytes of the stream read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Whether all data has been consumed.
    pub(crate) fn is_at_end(&mut self) -> Result<bool> {
        while self.at == self.data.len() {
            if self.end.is_some() {
                return Ok(true);
            }
            self.next_frame()?;
        }
        Ok(false)
    }

    /// Appends the next `len` bytes to `into`.
    pub(crate) fn read(&mut self, into: &mut Vec<u8>, mut len: usize) -> Result<()> {
        while len > 0 {
            if self.is_at_end()? {
                return Err(self.damaged("the data ends in the middle of a record"));
            }
            let now = len.min(self.data.len() - self.at);
            into.extend_from_slice(&self.data[self.at..self.at + now]);
            self.at += now;
            len -= now;
        }
        Ok(())
    }

    /// Reads the next number.
    pub(crate) fn read_varint(&mut self) -> Result<u64> {
        let mut bytes = Vec::with_capacity(10);
        while bytes.len() < 10 {
            self.read(&mut bytes, 1)?;
            if let Some((value, _)) = get_varint(&bytes) {
                return Ok(value);
            }
        }
        Err(self.damaged("a number is malformed"))
    }

    /// Reads the next number, a length of at most `max`.
    pub(crate) fn read_len(&mut self, max: usize, what: &str) -> Result<usize> {
        let len = self.read_varint()?;
        let fitting = usize::try_from(len).ok().filter(|len| *len <= max);
        fitting.ok_or_else(|| self.damaged(format!("{what} has {len} bytes, at most {max} are possible")))
    }

    /// Checks that all data was consumed, that it held `items` records or commits, and that nothing
    /// follows.
    pub(crate) fn finish(&mut self, items: u64) -> Result<()> {
        if !self.is_at_end()? {
            return Err(self.damaged("there is more data than its parts announce"));
        }
        if self.end != Some(Totals { items, ..self.totals }) {
            return Err(self.damaged("the totals at the end are not those of the data"));
        }
        self.frame_offset = self.read;
        match fill(self.from, &mut [0])? {
            0 => Ok(()),
            _ => Err(self.damaged("something follows the end")),
        }
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        let filled = fill(self.from, into)?;
        self.read += filled as u64;
        if filled < into.len() {
            return Err(truncated(self.read));
        }
        Ok(())
    }

    fn next_frame(&mut self) -> Result<()> {
        self.frame_offset = self.read;
        let mut header = [0; frame::HEADER_BYTES];
        self.fill(&mut header)?;
        let info = FrameInfo::decode(&header).ok_or_else(|| self.damaged("the header of a frame is malformed"))?;
        let mut stored = std::mem::take(&mut self.data);
        self.at = 0;
        stored.clear();
        stored.resize(info.stored_len, 0);
        self.fill(&mut stored)?;
        let crc = FrameInfo::check(self.previous_crc, &header, &stored);
        self.previous_crc = crc.ok_or_else(|| {
            self.damaged("the checksum of a frame is wrong: it is damaged, or another frame is missing before it")
        })?;
        if info.is_sealed != self.cipher.is_some() {
            return Err(self.damaged("a frame is not encrypted like its stream"));
        }
        if let Some(cipher) = &self.cipher {
            let number = self.totals.frames + u64::from(info.kind == FrameKind::Data);
            let opened = cipher.open_frame(number, &header, stored);
            stored = opened.ok_or_else(|| self.damaged("a frame is not what was encrypted at its place"))?;
        }
        let data = if info.is_packed {
            lz4::expand(&stored, info.raw_len, |len| vec![0; len])
                .ok_or_else(|| self.damaged("a frame does not expand"))?
        } else {
            stored
        };
        match info.kind {
            FrameKind::Data => {
                self.totals.frames += 1;
                self.totals.data_bytes += data.len() as u64;
                self.data = data;
            }
            FrameKind::End => {
                let totals = Totals::decode(&data).ok_or_else(|| self.damaged("the end frame is malformed"))?;
                self.end = Some(totals);
            }
        }
        Ok(())
    }
}

fn truncated(len: u64) -> Error {
    Error::corrupt_backup("it is truncated", len)
}
