//! The stream of an incremental backup: commits as opaque bytes.

use std::io::{Read, Write};

use super::header::Header;
use super::read::FrameReader;
use super::write::FrameWriter;
use crate::cipher::Key;
use crate::error::{Error, Result};
use crate::pages::Encryption;

/// Writes the commits after one version, up to another.
pub(crate) struct CommitWriter<'a> {
    frames: FrameWriter<&'a mut dyn Write>,
    last: u64,
    version: u64,
    commits: u64,
}

impl<'a> CommitWriter<'a> {
    /// Begins a stream that leads from version `header.base`, which is not 0, to `header.version`.
    pub(crate) fn new(into: &'a mut dyn Write, header: &Header, encryption: Option<&Encryption>) -> Result<Self> {
        if header.base == 0 || header.base >= header.version {
            return Err(Error::InvalidArgument {
                what: "an incremental backup leads from a version of at least 1 to a later one".into(),
            });
        }
        let header = Header {
            records: 0,
            collections: 0,
            ..*header
        };
        Ok(Self {
            frames: FrameWriter::new(into, &header, encryption)?,
            last: header.base,
            version: header.version,
            commits: 0,
        })
    }

    /// Appends a commit. Versions must ascend.
    pub(crate) fn write(&mut self, version: u64, changes: &[u8]) -> Result<()> {
        if version <= self.last || version > self.version {
            return Err(Error::InvalidArgument {
                what: format!("commit {version} does not belong after {} in the backup", self.last).into(),
            });
        }
        self.frames.write_varint(version)?;
        self.frames.write_counted(changes)?;
        self.last = version;
        self.commits += 1;
        Ok(())
    }

    /// Number of complete frames.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.frames()
    }

    /// Bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.frames.written()
    }

    /// Ends the frame, so that a reader gets all commits up to here.
    #[cfg(test)]
    fn flush(&mut self) -> Result<()> {
        self.frames.end_frame()
    }

    /// Ends the stream; returns its length.
    pub(crate) fn finish(mut self) -> Result<u64> {
        if self.last != self.version {
            return Err(Error::InvalidArgument {
                what: format!("the last commit is {}, not {}", self.last, self.version).into(),
            });
        }
        self.frames.finish(self.commits)
    }
}

/// Reads the output of a [`CommitWriter`].
pub(crate) struct CommitReader<'a> {
    frames: FrameReader<'a>,
    last: u64,
    version: u64,
    commits: u64,
}

impl<'a> CommitReader<'a> {
    /// Reads the header of a stream.
    pub(crate) fn new(from: &'a mut dyn Read, key: Option<&Key>) -> Result<(Header, Self)> {
        let (header, frames) = FrameReader::new(from, key)?;
        if header.base == 0 {
            return Err(Error::InvalidArgument {
                what: "this is a full backup, not an incremental one".into(),
            });
        }
        let reader = Self {
            frames,
            last: header.base,
            version: header.version,
            commits: 0,
        };
        Ok((header, reader))
    }

    /// Returns the next commit's version and changes, of at most `max_bytes`; `None` after the last
    /// one. Only [`finish`](Self::finish) tells whether the stream is complete.
    pub(crate) fn next(&mut self, max_bytes: usize) -> Result<Option<(u64, Vec<u8>)>> {
        if self.frames.is_at_end()? {
            return Ok(None);
        }
        let version = self.frames.read_varint()?;
        if version <= self.last || version > self.version {
            return Err(self.frames.damaged("the commits are not in order"));
        }
        let len = self.frames.read_len(max_bytes, "a commit")?;
        let mut changes = Vec::new();
        self.frames.read(&mut changes, len)?;
        self.last = version;
        self.commits += 1;
        Ok(Some((version, changes)))
    }

    /// Reports damage in the current frame.
    pub(crate) fn damaged(&self, what: impl Into<crate::error::Text>) -> Error {
        self.frames.damaged(what)
    }

    /// Number of frames read.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.frames()
    }

    /// Bytes of the stream read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.frames.bytes_read()
    }

    /// Checks the totals, and that nothing is missing or follows.
    pub(crate) fn finish(mut self) -> Result<()> {
        if self.last != self.version {
            return Err(self.frames.damaged("the last commits are missing"));
        }
        self.frames.finish(self.commits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    fn header(base: u64, version: u64) -> Header {
        Header {
            node_bytes: 16384,
            database_id: 5,
            version,
            base,
            records: 9,
            collections: 9,
        }
    }

    fn stream(commits: &[(u64, Vec<u8>)], flush: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let last = commits.last().unwrap().0;
        let mut writer = CommitWriter::new(&mut bytes, &header(3, last), None).unwrap();
        for (version, changes) in commits {
            writer.write(*version, changes).unwrap();
            if flush {
                writer.flush().unwrap();
            }
        }
        let len = writer.finish().unwrap();
        assert_eq!(len, bytes.len() as u64);
        bytes
    }

    fn read(mut bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>> {
        let (_, mut reader) = CommitReader::new(&mut bytes, None)?;
        let mut commits = Vec::new();
        while let Some(commit) = reader.next(MAX)? {
            commits.push(commit);
        }
        reader.finish().map(|()| commits)
    }

    #[test]
    fn commits_round_trip() {
        let noise = (0..700_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8);
        let commits = vec![(4, b"four".to_vec()), (6, Vec::new()), (7, noise.collect())];
        for flush in [false, true] {
            assert_eq!(read(&stream(&commits, flush)).unwrap(), commits);
        }
    }

    #[test]
    fn every_damage_is_found() {
        let commits = vec![(4, vec![1; 300]), (5, vec![2; 40]), (6, vec![3; 40])];
        let whole = stream(&commits, true);
        for at in 0..whole.len() {
            assert!(read(&whole[..at]).is_err(), "cut at {at}");
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(read(&damaged).is_err(), "damaged at {at}");
        }
        assert!(matches!(
            read(&[&whole[..], b"x"].concat()),
            Err(Error::CorruptBackup(_))
        ));
    }

    #[test]
    fn frames_that_are_missing_repeated_or_swapped_are_found() {
        let commits: Vec<_> = (4..8).map(|version| (version, vec![version as u8; 20])).collect();
        let whole = stream(&commits, true);
        let len = 16 + 2 + 20;
        let frame = |number: usize| whole[64 + number * len..64 + (number + 1) * len].to_vec();
        let (head, tail) = (whole[..64].to_vec(), whole[64 + 4 * len..].to_vec());
        let with = |order: &[usize]| {
            let frames = order.iter().flat_map(|number| frame(*number));
            read(&[head.clone(), frames.collect(), tail.clone()].concat())
        };
        assert_eq!(with(&[0, 1, 2, 3]).unwrap(), commits);
        for order in [
            &[0, 1, 2][..],
            &[1, 2, 3],
            &[0, 2, 3],
            &[0, 2, 1, 3],
            &[0, 1, 1, 2, 3],
            &[],
        ] {
            assert!(matches!(with(order), Err(Error::CorruptBackup(_))), "{order:?}");
        }
    }

    #[test]
    fn commits_out_of_sequence_are_refused() {
        let mut sink = Vec::new();
        assert!(CommitWriter::new(&mut sink, &header(0, 4), None).is_err());
        assert!(CommitWriter::new(&mut sink, &header(4, 4), None).is_err());
        let mut writer = CommitWriter::new(&mut sink, &header(3, 5), None).unwrap();
        assert!(writer.write(3, b"").is_err() && writer.write(6, b"").is_err());
        writer.write(4, b"").unwrap();
        assert!(writer.write(4, b"").is_err());
        assert!(writer.finish().is_err(), "commit 5 is missing");
        // Valid frames with contents that no writer makes.
        for content in [
            &b"\x03\0"[..],
            b"\x06\0",
            b"\x05\0\x04\0",
            b"\x04\0",
            b"\x05\x02a",
            b"\x05",
        ] {
            let mut bytes = Vec::new();
            let mut frames = FrameWriter::new(&mut bytes, &header(3, 5), None).unwrap();
            frames.write(content).unwrap();
            frames.finish(1).unwrap();
            assert!(matches!(read(&bytes), Err(Error::CorruptBackup(_))), "{content:?}");
        }
    }
}
