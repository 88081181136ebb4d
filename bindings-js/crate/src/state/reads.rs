//! Lookups, counts and positions, and scans.

use mangrove_engine::{Database, Direction, Error, Result, Tree, WriteTransaction};

use super::State;
use crate::protocol::{Reader, Writer};
use crate::range;
use crate::scan::Scan;
use crate::session::Writes;

impl State {
    pub(super) fn get(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, key) = (reader.view()?, reader.uv()?, reader.bytes()?);
        let source = self.source(writes, view, collection)?;
        out.optional_with(|into| source.get_into(key, into))
    }

    pub(super) fn get_many(
        &mut self,
        writes: &mut Writes<'_>,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (view, collection) = (reader.view()?, reader.uv()?);
        let (count, mut keys) = reader.list()?;
        let source = self.source(writes, view, collection)?;
        for _ in 0..count {
            let key = keys.bytes()?;
            out.optional_with(|into| source.get_into(key, into))?;
        }
        Ok(())
    }

    pub(super) fn has_many(
        &mut self,
        writes: &mut Writes<'_>,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (view, collection) = (reader.view()?, reader.uv()?);
        let (count, mut keys) = reader.list()?;
        let source = self.source(writes, view, collection)?;
        for _ in 0..count {
            out.flag(source.contains(keys.bytes()?)?);
        }
        Ok(())
    }

    pub(super) fn count(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range) = (reader.view()?, reader.uv()?, reader.range()?);
        let tree = self.tree(database, view, collection)?;
        out.uv(tree.map_or(Ok(0), |tree| range::count(tree, range))?);
        Ok(())
    }

    pub(super) fn rank(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range, key) = (reader.view()?, reader.uv()?, reader.range()?, reader.bytes()?);
        let tree = self.tree(database, view, collection)?;
        out.uv(tree.map_or(Ok(0), |tree| range::count(tree, range::before(range, key)))?);
        Ok(())
    }

    pub(super) fn at(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range) = (reader.view()?, reader.uv()?, reader.range()?);
        let (from_end, index) = (reader.flag()?, reader.uv()?);
        let entry = match self.tree(database, view, collection)? {
            Some(tree) => match range::position(tree, &range, from_end, index)? {
                Some(position) => tree.at(position)?,
                None => None,
            },
            None => None,
        };
        out.flag(entry.is_some());
        if let Some((key, value)) = entry {
            out.bytes(&key);
            out.bytes(&value);
        }
        Ok(())
    }

    pub(super) fn edge(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range) = (reader.view()?, reader.uv()?, reader.range()?);
        let direction = if reader.flag()? {
            Direction::Reverse
        } else {
            Direction::Forward
        };
        let tree = self.tree(database, view, collection)?;
        if let Some(tree) = tree.filter(|_| !range::is_empty(&range)) {
            let mut cursor = tree.cursor(range, direction);
            if cursor.advance()? {
                out.flag(true);
                out.bytes(cursor.key());
                return out.bytes_with(|into| cursor.value_into(into));
            }
        }
        out.flag(false);
        Ok(())
    }

    pub(super) fn scan_open(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (id, view, collection) = (reader.uv()?, reader.view()?, reader.uv()?);
        let (range, options) = (reader.range()?, reader.scan_options()?);
        let tree = self.tree(database, view, collection)?;
        let mut scan = Scan::open(tree, range, &options)?;
        if scan.chunk(options.chunk, out)? {
            self.scans.insert(id, scan);
        }
        Ok(())
    }

    pub(super) fn scan_next(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (id, chunk) = (reader.uv()?, reader.chunk()?);
        let scan = self.scans.get_mut(id).ok_or(Error::Closed)?;
        let result = scan.chunk(chunk, out);
        if !matches!(result, Ok(true)) {
            self.scans.remove(id);
        }
        result.map(|_| ())
    }

    pub(super) fn scan_seek(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let (id, key, limit) = (reader.uv()?, reader.bytes()?, reader.limit()?);
        self.scans.get_mut(id).ok_or(Error::Closed)?.seek(key, limit)
    }

    pub(super) fn scan_close(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let id = reader.uv()?;
        self.scans.remove(id);
        Ok(())
    }
}

/// Where keys are looked up.
pub(super) enum Source<'a> {
    Committed(Option<&'a Tree>),
    Open(&'a WriteTransaction<'a>, &'a str),
}

impl Source<'_> {
    /// Appends the value of a key, if there is one.
    fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        match self {
            Self::Committed(tree) => tree.map_or(Ok(false), |tree| tree.get_into(key, into)),
            Self::Open(transaction, name) => {
                let value = transaction.get(name, key)?;
                into.extend_from_slice(value.as_deref().unwrap_or_default());
                Ok(value.is_some())
            }
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Committed(tree) => tree.map_or(Ok(false), |tree| tree.contains(key)),
            Self::Open(transaction, name) => Ok(transaction.get(name, key)?.is_some()),
        }
    }
}
