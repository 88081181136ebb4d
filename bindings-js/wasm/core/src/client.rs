//! A client: what its last message was answered, so that repeated requests are not executed again.

use mangrove_engine::{Error, Result, Snapshot};

use crate::protocol::{Reader, Writer};

/// The reply to a request that committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    /// Offset and length of the request in its message.
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) reply: Vec<u8>,
}

/// A client's identity, and the outcomes of its current message in the order of the requests.
#[derive(Default)]
pub(crate) struct Client {
    /// Empty if nothing is stored for the client.
    name: Vec<u8>,
    pub(crate) read_only: bool,
    pub(crate) is_closed: bool,
    /// Number of the current message.
    seq: u64,
    outcomes: Vec<Outcome>,
}

impl Client {
    /// Returns a client with what the last commit of a client of this name stored.
    pub(crate) fn load(name: &str, read_only: bool, snapshot: &Snapshot) -> Result<Self> {
        let mut client = Self {
            name: name.as_bytes().to_vec(),
            read_only,
            ..Self::default()
        };
        let stored = snapshot.client(&client.name)?;
        if let Some((seq, outcomes)) = stored.and_then(|stored| decode(&mut Reader::new(&stored)).ok()) {
            client.seq = seq;
            client.outcomes = outcomes;
        }
        Ok(client)
    }

    /// Returns a client for which nothing is executed.
    pub(crate) fn closed() -> Self {
        Self {
            is_closed: true,
            ..Self::default()
        }
    }

    /// Begins message `seq`; the outcomes of any other message are dropped.
    pub(crate) fn begin(&mut self, seq: u64) {
        if seq != self.seq {
            self.seq = seq;
            self.outcomes.clear();
        }
    }

    /// Fails if the client is read-only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Whether outcomes are stored for the client.
    pub(crate) fn is_remembered(&self) -> bool {
        !self.name.is_empty()
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the outcome of the request at offset `at`, if it was committed before.
    pub(crate) fn outcome_at(&self, at: usize) -> Option<&Outcome> {
        let index = self.outcomes.binary_search_by_key(&at, |outcome| outcome.at).ok()?;
        self.outcomes.get(index)
    }

    /// Whether a request at offset `at` or beyond was committed before.
    pub(crate) fn has_outcomes_from(&self, at: usize) -> bool {
        self.outcomes.last().is_some_and(|outcome| outcome.at >= at)
    }

    /// Returns the number of outcomes, for [`undo_to`](Self::undo_to).
    pub(crate) fn mark(&self) -> usize {
        self.outcomes.len()
    }

    /// Drops the outcomes of commits that were undone.
    pub(crate) fn undo_to(&mut self, mark: usize) {
        self.outcomes.truncate(mark);
    }

    pub(crate) fn push(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// Encodes what is stored with the commits.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.uv(self.seq);
        out.uv(self.outcomes.len() as u64);
        for outcome in &self.outcomes {
            out.uv(outcome.at as u64);
            out.uv(outcome.len as u64);
            out.bytes(&outcome.reply);
        }
        out.into_bytes()
    }
}

fn decode(reader: &mut Reader<'_>) -> Result<(u64, Vec<Outcome>)> {
    let seq = reader.uv()?;
    let mut outcomes = Vec::new();
    for _ in 0..reader.count()? {
        outcomes.push(Outcome {
            at: reader.size()?,
            len: reader.size()?,
            reply: reader.bytes()?.to_vec(),
        });
    }
    Ok((seq, outcomes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_round_trip() {
        let mut client = Client {
            name: b"a".to_vec(),
            ..Client::default()
        };
        client.begin(7);
        for at in [0, 9, 300] {
            client.push(Outcome {
                at,
                len: 9,
                reply: vec![0, 1],
            });
        }
        let (seq, outcomes) = decode(&mut Reader::new(&client.encode())).unwrap();
        assert_eq!((seq, &outcomes), (7, &client.outcomes));
        assert_eq!(client.outcome_at(9), Some(&outcomes[1]));
        assert_eq!(client.outcome_at(10), None);
        assert!(client.has_outcomes_from(300) && !client.has_outcomes_from(301));
        client.begin(7);
        assert_eq!(client.mark(), 3);
        client.undo_to(1);
        assert_eq!(client.outcome_at(9), None);
        client.begin(8);
        assert_eq!(client.mark(), 0);
    }
}
