//! Writing a stream: header, data frames, end frame.

use std::io::{ErrorKind, Write};

use super::encrypted::FrameCipher;
use super::frame::{self, FRAME_BYTES, FrameInfo, FrameKind, Totals};
use super::header::Header;
use crate::block::lz4;
use crate::cipher::{NONCE_BYTES, TAG_BYTES};
use crate::error::{Error, Result};
use crate::pages::Encryption;

/// Data below this length is not worth compressing.
const COMPRESS_FROM_BYTES: usize = 256;

/// Splits the data of a stream into frames. Memory is bounded by two frames.
pub(crate) struct FrameWriter<W> {
    into: W,
    data: Vec<u8>,
    frame: Vec<u8>,
    previous_crc: u32,
    cipher: Option<FrameCipher>,
    totals: Totals,
    written: u64,
}

fn failed(error: &std::io::Error) -> Error {
    let context = "writing the backup".to_owned();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Error::StorageFull {
            context: context.into(),
        },
        _ => Error::io(context, error.to_string()),
    }
}

impl<W: Write> FrameWriter<W> {
    /// Begins a stream, sealed like its database.
    pub(crate) fn new(into: W, header: &Header, encryption: Option<&Encryption>) -> Result<Self> {
        let head = header.encode(encryption.is_some());
        let sealed = encryption.map(|encryption| FrameCipher::create(encryption, &head));
        let mut writer = Self {
            into,
            data: Vec::with_capacity(FRAME_BYTES),
            frame: head.to_vec(),
            previous_crc: frame::crc_at_end(&head),
            cipher: None,
            totals: Totals::default(),
            written: 0,
        };
        if let Some((cipher, wrapped)) = sealed {
            writer.frame.extend_from_slice(&wrapped);
            writer.cipher = Some(cipher);
        }
        writer.put()?;
        Ok(writer)
    }

    /// Appends data, which may span several frames.
    pub(crate) fn write(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let (now, later) = data.split_at(data.len().min(FRAME_BYTES - self.data.len()));
            self.data.extend_from_slice(now);
            data = later;
            if self.data.len() == FRAME_BYTES {
                self.end_frame()?;
            }
        }
        Ok(())
    }

    /// Appends an unsigned LEB128 number.
    pub(crate) fn write_varint(&mut self, value: u64) -> Result<()> {
        let mut bytes = Vec::with_capacity(10);
        crate::node::cell::put_varint(&mut bytes, value);
        self.write(&bytes)
    }

    /// Appends a length and that many bytes.
    pub(crate) fn write_counted(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_varint(bytes.len() as u64)?;
        self.write(bytes)
    }

    /// Ends the frame, so that a reader gets everything up to here.
    pub(crate) fn end_frame(&mut self) -> Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        let data = std::mem::take(&mut self.data);
        self.totals.frames += 1;
        self.totals.data_bytes += data.len() as u64;
        self.encode(FrameKind::Data, &data);
        self.data = data;
        self.data.clear();
        self.put()
    }

    /// Ends the stream, which holds `items` records or commits, and flushes the sink; returns its
    /// length.
    pub(crate) fn finish(&mut self, items: u64) -> Result<u64> {
        self.end_frame()?;
        self.totals.items = items;
        let end = self.totals.encode();
        self.encode(FrameKind::End, &end);
        self.put()?;
        self.into.flush().map_err(|error| failed(&error))?;
        Ok(self.written)
    }

    /// The sink of the stream.
    pub(crate) fn sink(&mut self) -> &mut W {
        &mut self.into
    }

    /// Number of complete frames.
    pub(crate) fn frames(&self) -> u64 {
        self.totals.frames
    }

    /// Bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    fn encode(&mut self, kind: FrameKind, data: &[u8]) {
        let out = &mut self.frame;
        out.clear();
        let is_sealed = self.cipher.is_some();
        let head = frame::HEADER_BYTES + if is_sealed { NONCE_BYTES } else { 0 };
        out.resize(head, 0);
        let mut packed = usize::MAX;
        if data.len() >= COMPRESS_FROM_BYTES {
            packed = lz4::compress(data, out);
        }
        let is_packed = packed < data.len();
        if !is_packed {
            out.truncate(head);
            out.extend_from_slice(data);
        }
        if is_sealed {
            out.extend_from_slice(&[0; TAG_BYTES]);
        }
        let info = FrameInfo {
            kind,
            is_packed,
            is_sealed,
            stored_len: out.len() - frame::HEADER_BYTES,
            raw_len: data.len(),
        };
        self.previous_crc = info.finish(self.previous_crc, self.cipher.as_ref(), self.totals.frames, out);
    }

    fn put(&mut self) -> Result<()> {
        self.into.write_all(&self.frame).map_err(|error| failed(&error))?;
        self.written += self.frame.len() as u64;
        Ok(())
    }
}
