//! The records of the workloads. Each is generated from its number, so that the largest sets take
//! no memory beside the engine's.

use std::ops::Range;

/// The form of a set's keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Random keys of 24 bytes, random values of 150.
    Random,
    /// Ascending keys of 24 bytes, random values of 150.
    Ascending,
    /// Random keys of 24 bytes, incompressible values of 1 MiB.
    Large,
    /// Ascending 64-bit numbers to 64-bit numbers.
    Ints,
    /// `abcdefghijklmno` followed by a number, to the same.
    Strings,
    /// Random 16-byte identifiers, values of 100 bytes.
    Guids,
    /// Ascending 32-bit numbers to random 16-byte identifiers.
    Int32Guids,
    /// `user:` followed by a number, to about 150 bytes of JSON.
    Json,
}

const LARGE_BYTES: usize = 1 << 20;

/// All records of one shape and seed.
pub(crate) struct Set {
    shape: Shape,
    seed: u64,
    /// Large values are windows into this, two for each number.
    blob: Vec<u8>,
}

impl Set {
    pub(crate) fn new(shape: Shape, seed: u64, records: usize) -> Self {
        let blob_bytes = if shape == Shape::Large {
            LARGE_BYTES + 2 * records
        } else {
            0
        };
        let mut blob = vec![0; blob_bytes];
        fastrand::Rng::with_seed(seed).fill(&mut blob);
        Self { shape, seed, blob }
    }

    /// Returns the records with these numbers, in this order.
    pub(crate) fn range(&self, numbers: Range<usize>) -> Records<'_> {
        Records {
            set: self,
            numbers,
            count: None,
            seed: 0,
            generation: 0,
        }
    }

    fn rng(&self, number: usize) -> fastrand::Rng {
        let spread = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        fastrand::Rng::with_seed(self.seed.rotate_left(32) ^ spread)
    }

    fn key(&self, number: usize, key: &mut Vec<u8>) {
        key.clear();
        match self.shape {
            Shape::Random | Shape::Large => append_random(&mut self.rng(number), key, 24),
            Shape::Ascending => {
                key.extend_from_slice(&(number as u64).to_be_bytes());
                key.resize(24, 0);
            }
            Shape::Ints => key.extend_from_slice(&(number as u64).to_be_bytes()),
            Shape::Strings => append_string(number, key),
            Shape::Guids => append_random(&mut self.rng(number), key, 16),
            Shape::Int32Guids => key.extend_from_slice(&(number as u32).to_be_bytes()),
            Shape::Json => append(key, format_args!("user:{number:012}")),
        }
    }

    /// Returns a value. Generations have different values for the same keys, except with
    /// [`Shape::Strings`].
    fn value<'a>(&'a self, number: usize, generation: u64, value: &'a mut Vec<u8>) -> &'a [u8] {
        let mut rng = self.rng(number ^ (1 << 60));
        rng.seed(rng.get_seed() ^ generation);
        value.clear();
        match self.shape {
            Shape::Large => {
                let start = 2 * number + usize::from(generation > 0);
                return &self.blob[start..start + LARGE_BYTES];
            }
            Shape::Random | Shape::Ascending => append_random(&mut rng, value, 150),
            Shape::Ints => value.extend_from_slice(&(number as u64 ^ generation).to_le_bytes()),
            Shape::Strings => append_string(number, value),
            Shape::Guids => append_random(&mut rng, value, 100),
            Shape::Int32Guids => append_random(&mut rng, value, 16),
            Shape::Json => append_json(&mut rng, number, value),
        }
        value
    }
}

fn append_random(rng: &mut fastrand::Rng, to: &mut Vec<u8>, bytes: usize) {
    let start = to.len();
    to.resize(start + bytes, 0);
    rng.fill(&mut to[start..]);
}

fn append_string(number: usize, to: &mut Vec<u8>) {
    append(to, format_args!("abcdefghijklmno{number}"));
}

const FIRST: [&str; 8] = ["Ada", "Amina", "Chen", "Diego", "Ingrid", "Kofi", "Noor", "Yuki"];
const LAST: [&str; 8] = [
    "Abebe", "Haddad", "Ito", "Lovelace", "Mensah", "Olsen", "Quispe", "Zhang",
];
const CITIES: [&str; 8] = ["Accra", "Bergen", "Cairo", "Kyoto", "Lagos", "London", "Quito", "Wuhan"];

fn append_json(rng: &mut fastrand::Rng, number: usize, to: &mut Vec<u8>) {
    let mut word = |words: &[&'static str; 8]| words[rng.usize(0..8)];
    let (first, last, city) = (word(&FIRST), word(&LAST), word(&CITIES));
    let (active, score, visits) = (rng.bool(), rng.u32(0..100_000), rng.u32(0..1000));
    append(
        to,
        format_args!(
            r#"{{"id":{number},"name":"{first} {last}","email":"{first}.{last}@example.com","city":"{city}","active":{active},"score":{score},"visits":{visits},"tags":["reader","{city}"]}}"#
        ),
    );
}

fn append(to: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    use std::io::Write as _;

    to.write_fmt(text).expect("vectors take everything");
}

/// Some records of a set.
#[derive(Clone)]
pub(crate) struct Records<'a> {
    set: &'a Set,
    numbers: Range<usize>,
    /// Number of records to draw at random, if any.
    count: Option<usize>,
    seed: u64,
    generation: u64,
}

impl<'a> Records<'a> {
    /// Draws `count` of these records at random, some of them repeatedly.
    pub(crate) fn sample(&self, count: usize, seed: u64) -> Self {
        Self {
            count: Some(count),
            seed,
            ..self.clone()
        }
    }

    /// Returns the same keys with other values.
    pub(crate) fn changed(&self, generation: u64) -> Self {
        Self {
            generation,
            ..self.clone()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count.unwrap_or(self.numbers.len())
    }

    /// Splits the records into chunks of at most `records`. A new random sample is drawn for each
    /// chunk.
    pub(crate) fn chunks(&self, records: usize) -> impl Iterator<Item = Records<'a>> {
        let whole = self.clone();
        (0..self.len()).step_by(records).enumerate().map(move |(at, start)| {
            let count = records.min(whole.len() - start);
            if whole.count.is_some() {
                return whole.sample(count, whole.seed ^ ((at as u64 + 1) << 32));
            }
            let first = whole.numbers.start + start;
            Records {
                numbers: first..first + count,
                ..whole.clone()
            }
        })
    }

    fn each_number(&self, mut take: impl FnMut(usize)) {
        let Some(count) = self.count else {
            return self.numbers.clone().for_each(take);
        };
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0x5bd1_e995);
        (0..count).for_each(|_| take(rng.usize(self.numbers.clone())));
    }

    pub(crate) fn each(&self, mut take: impl FnMut(&[u8], &[u8])) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.each_number(|number| {
            self.set.key(number, &mut key);
            take(&key, self.set.value(number, self.generation, &mut value));
        });
    }

    /// Returns the bytes of the keys and values themselves.
    pub(crate) fn raw_bytes(&self) -> u64 {
        let mut bytes = 0;
        self.each(|key, value| bytes += (key.len() + value.len()) as u64);
        bytes
    }

    pub(crate) fn each_key(&self, mut take: impl FnMut(&[u8])) {
        let mut key = Vec::new();
        self.each_number(|number| {
            self.set.key(number, &mut key);
            take(&key);
        });
    }
}
