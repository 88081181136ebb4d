//! Bulk load: records in any order become the content of a tree, or part of it.
//!
//! Records are collected in memory. If that is full and they came in ascending order behind everything that the tree has, they go straight
//! to a [`Builder`], and so does all that follows in order. Otherwise they are sorted into a run. At the end runs and memory are merged:
//! behind the tree's records, together with them into a new tree, or, if the tree is much larger, one by one into it.

use std::ops::ControlFlow;

use super::bulk::Builder;
use super::runs::{Collector, Head, Merge, Run, RunWriter, Source, reduce};
use super::{Editor, read};
use crate::error::{Error, Result};
use crate::node::{Child, LeafCell, ValuePlace};

/// What becomes of records of a bulk load that have the same key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duplicates {
    /// The load fails.
    #[default]
    Error,
    /// The first one counts.
    First,
    /// The last one counts.
    Last,
}

/// A tree that has at least this many times the records that are loaded is changed in place.
const IN_PLACE_FACTOR: u64 = 4;
const MIN_BLOCK_BYTES: usize = 512;
const MAX_BLOCK_BYTES: usize = 64 << 10;

/// What a load did.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub records: u64,
    pub written: u64,
    pub replaced: u64,
    pub duplicates: u64,
    pub runs: u64,
}

/// A record that may still meet another one with its key.
struct Pending {
    key: Vec<u8>,
    payload: Vec<u8>,
    /// It was there before the load.
    is_old: bool,
}

/// A tree in the making.
struct Sink {
    builder: Builder,
    pending: Option<Pending>,
}

/// How sorted records get into the tree.
enum Output {
    Build(Sink),
    /// As `Build`; the former tree, whose records are the merge's first source, is given up in the end.
    Rebuild(Sink, Child),
    /// One by one. The key is that of the record before.
    Insert(Option<Vec<u8>>),
}

/// A load under way.
pub(crate) struct Load {
    pub counts: Counts,
    duplicates: Duplicates,
    memory_bytes: usize,
    block_bytes: usize,
    collector: Collector,
    runs: Vec<Run>,
    /// All records so far came in order.
    is_sorted: bool,
    /// Least key of those that went through the collector.
    least: Option<Vec<u8>>,
    /// Where the records go while they come in order.
    stream: Option<Sink>,
    /// Records from this key on came with this load.
    new_from: Option<Vec<u8>>,
    output: Option<(Merge, Output)>,
}

impl Load {
    pub(crate) fn new(duplicates: Duplicates, memory_bytes: usize) -> Self {
        Self {
            counts: Counts::default(),
            duplicates,
            memory_bytes,
            block_bytes: (memory_bytes / 32).clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES),
            collector: Collector::new(memory_bytes),
            runs: Vec::new(),
            is_sorted: true,
            least: None,
            stream: None,
            new_from: None,
            output: None,
        }
    }

    /// Takes a record. Lengths were checked by the caller.
    pub(crate) fn add(&mut self, editor: &mut Editor<'_>, key: Vec<u8>, value: &[u8]) -> Result<()> {
        self.counts.records += 1;
        let cell = LeafCell {
            version: editor.draft.version,
            expires: 0,
            value_len: value.len(),
            place: if editor.limits.is_inline(key.len(), value.len()) {
                ValuePlace::Inline(value)
            } else {
                ValuePlace::OutOfLine(editor.write_value(value)?)
            },
        };
        let mut payload = Vec::with_capacity(value.len().min(editor.limits.max_inline_bytes) + 24);
        cell.encode_into(&mut payload);
        let last = match &self.stream {
            Some(sink) => sink.pending.as_ref().map(|pending| pending.key.as_slice()),
            None => self.collector.last_key(),
        };
        self.is_sorted &= last.is_none_or(|last| last <= key.as_slice());
        if let Some(sink) = &mut self.stream {
            if self.is_sorted {
                let record = Pending {
                    key,
                    payload,
                    is_old: false,
                };
                return sink.accept(editor, record, self.duplicates, &mut self.counts);
            }
            self.end_stream(editor)?;
        }
        self.collector.push(&key, &payload);
        if self.least.as_ref().is_none_or(|least| key < *least) {
            self.least = Some(key);
        }
        if self.collector.memory_bytes() >= self.memory_bytes {
            self.make_room(editor)?;
        }
        Ok(())
    }

    fn make_room(&mut self, editor: &mut Editor<'_>) -> Result<()> {
        let last = editor.last_key()?;
        if self.is_sorted && self.collector.first_key() > last.as_deref() {
            self.new_from = self.least.take();
            let mut sink = self.sink(editor, true)?;
            for index in 0..self.collector.len() {
                let (key, payload) = self.collector.record(index);
                let record = Pending {
                    key: key.to_vec(),
                    payload: payload.to_vec(),
                    is_old: false,
                };
                sink.accept(editor, record, self.duplicates, &mut self.counts)?;
            }
            self.collector = Collector::default();
            self.stream = Some(sink);
            return Ok(());
        }
        // From here on all records have to be sorted.
        self.is_sorted = false;
        self.collector.sort();
        let mut writer = RunWriter::new(self.block_bytes);
        for index in 0..self.collector.len() {
            let (key, payload) = self.collector.record(index);
            writer.push(editor, key, payload)?;
        }
        self.runs.push(writer.finish(editor)?);
        self.counts.runs += 1;
        self.collector.clear();
        Ok(())
    }

    fn sink(&self, editor: &mut Editor<'_>, append: bool) -> Result<Sink> {
        Ok(Sink {
            builder: Builder::new(editor, append, self.memory_bytes / 4)?,
            pending: None,
        })
    }

    fn end_stream(&mut self, editor: &mut Editor<'_>) -> Result<()> {
        match self.stream.take() {
            Some(sink) => sink.finish(editor, &mut self.counts),
            None => Ok(()),
        }
    }

    /// All records are there; `tick` is called for each that has to be moved before they can be merged, and may break.
    pub(crate) fn end_input(
        &mut self,
        editor: &mut Editor<'_>,
        tick: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.end_stream(editor)?;
        let Some(least) = self.least.take() else {
            return Ok(ControlFlow::Continue(()));
        };
        self.collector.sort();
        let most = (self.memory_bytes / self.block_bytes / 2).max(2);
        let runs = std::mem::take(&mut self.runs);
        let Some(runs) = reduce(editor, runs, most, self.block_bytes, tick)? else {
            return Ok(ControlFlow::Break(()));
        };
        let mut sources: Vec<Source> = runs.into_iter().map(Source::run).collect();
        sources.push(Source::memory(std::mem::take(&mut self.collector)));
        let output = match *editor.root {
            Some(root) if editor.last_key()?.is_some_and(|last| least <= last) => {
                if root.count / IN_PLACE_FACTOR > self.counts.records - self.counts.written {
                    Output::Insert(None)
                } else {
                    sources.insert(0, Source::tree(root, editor.owner));
                    Output::Rebuild(self.sink(editor, false)?, root)
                }
            }
            _ => Output::Build(self.sink(editor, true)?),
        };
        self.output = Some((Merge::new(editor, sources)?, output));
        Ok(ControlFlow::Continue(()))
    }

    /// Puts the next sorted record into the tree; `false` when everything is there.
    pub(crate) fn put_next(&mut self, editor: &mut Editor<'_>) -> Result<bool> {
        let Some((merge, output)) = &mut self.output else {
            return Ok(false);
        };
        let Some(Head { key, payload, source }) = merge.next(editor)? else {
            self.end_output(editor)?;
            return Ok(false);
        };
        let is_new = |key: &Vec<u8>| self.new_from.as_ref().is_some_and(|from| key >= from);
        match output {
            Output::Insert(before) => {
                let is_duplicate = before.as_ref() == Some(&key)
                    || is_new(&key) && read::find(&editor.pages(), editor.root.as_ref(), editor.owner, &key)?.is_some();
                let cell = LeafCell::decode(&payload);
                if is_duplicate {
                    self.counts.duplicates += 1;
                    match self.duplicates {
                        Duplicates::Error => return Err(duplicate(&key)),
                        Duplicates::First => return editor.retire_value(&cell).map(|()| true),
                        Duplicates::Last => {}
                    }
                }
                let found = editor.put(&key, &cell)?;
                if !is_duplicate {
                    self.counts.written += 1;
                    self.counts.replaced += u64::from(found);
                }
                *before = Some(key);
            }
            Output::Build(sink) => {
                let record = Pending {
                    key,
                    payload,
                    is_old: false,
                };
                sink.accept(editor, record, self.duplicates, &mut self.counts)?;
            }
            Output::Rebuild(sink, _) => {
                let is_old = source == 0 && !is_new(&key);
                // What the stream wrote was counted there.
                self.counts.written -= u64::from(source == 0 && !is_old);
                let record = Pending { key, payload, is_old };
                sink.accept(editor, record, self.duplicates, &mut self.counts)?;
            }
        }
        Ok(true)
    }

    fn end_output(&mut self, editor: &mut Editor<'_>) -> Result<()> {
        match self.output.take() {
            Some((_, Output::Build(sink))) => sink.finish(editor, &mut self.counts),
            Some((_, Output::Rebuild(sink, old))) => {
                sink.finish(editor, &mut self.counts)?;
                editor.retire_nodes(&old)
            }
            _ => Ok(()),
        }
    }
}

impl Sink {
    /// Adds a record whose key is not less than that of the record before.
    fn accept(
        &mut self,
        editor: &mut Editor<'_>,
        record: Pending,
        duplicates: Duplicates,
        counts: &mut Counts,
    ) -> Result<()> {
        let Some(pending) = &mut self.pending else {
            self.pending = Some(record);
            return Ok(());
        };
        if pending.key != record.key {
            let ready = std::mem::replace(pending, record);
            return self.push(editor, ready, counts);
        }
        if pending.is_old {
            counts.replaced += 1;
        } else {
            counts.duplicates += 1;
            match duplicates {
                Duplicates::Error => return Err(duplicate(&record.key)),
                Duplicates::First => return editor.retire_value(&LeafCell::decode(&record.payload)),
                Duplicates::Last => {}
            }
        }
        let lost = std::mem::replace(pending, record);
        editor.retire_value(&LeafCell::decode(&lost.payload))
    }

    fn push(&mut self, editor: &mut Editor<'_>, record: Pending, counts: &mut Counts) -> Result<()> {
        counts.written += u64::from(!record.is_old);
        self.builder.push(editor, record.key, record.payload)
    }

    fn finish(mut self, editor: &mut Editor<'_>, counts: &mut Counts) -> Result<()> {
        if let Some(last) = self.pending.take() {
            self.push(editor, last, counts)?;
        }
        self.builder.finish(editor)
    }
}

fn duplicate(key: &[u8]) -> Error {
    Error::InvalidArgument {
        what: format!(
            "the input of the bulk load has the key {} more than once",
            key.escape_ascii()
        ),
    }
}
