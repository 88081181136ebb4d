//! LZ4 in the block format of <https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>.

/// Maximum expansion factor of LZ4.
const MAX_EXPANSION: usize = 255;

/// Inputs of at least this length are sampled before they are compressed.
const SAMPLED_BYTES: usize = 64 << 10;
const SAMPLES: usize = 4;
const SAMPLE_BYTES: usize = 4 << 10;

/// Whether a long input, such as an image or an archive, is not worth compressing. No sampled piece
/// of such an input shrinks by a sixteenth. Compressing all of it just to find out would take most
/// of the time needed to write it.
pub(crate) fn is_incompressible(input: &[u8]) -> bool {
    if input.len() < SAMPLED_BYTES {
        return false;
    }
    let distance = (input.len() - SAMPLE_BYTES) / (SAMPLES - 1);
    let mut out = Vec::new();
    (0..SAMPLES).all(|sample| {
        out.clear();
        compress(&input[sample * distance..][..SAMPLE_BYTES], &mut out) > SAMPLE_BYTES / 16 * 15
    })
}

/// Appends the compressed `input` to `out`; returns its length, which may exceed the input's.
pub(crate) fn compress(input: &[u8], out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(input.len()), 0);
    let written = lz4_flex::block::compress_into(input, &mut out[start..]).unwrap_or(usize::MAX);
    out.truncate(start.saturating_add(written));
    written
}

/// Decompresses `stored` to `raw_len` bytes, in a buffer from `buffer`; `None` if it is malformed.
/// A hostile length cannot allocate much more memory than `stored` could expand to.
pub(crate) fn expand(stored: &[u8], raw_len: usize, buffer: impl FnOnce(usize) -> Vec<u8>) -> Option<Vec<u8>> {
    if raw_len > stored.len().saturating_mul(MAX_EXPANSION).saturating_add(64) {
        return None;
    }
    let mut raw = buffer(raw_len);
    let written = lz4_flex::block::decompress_into(stored, &mut raw).ok()?;
    (written == raw_len).then_some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudorandom bytes without repetitions.
    fn noise(len: usize) -> Vec<u8> {
        let mut word = 1_u64;
        let bytes = std::iter::repeat_with(|| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (word >> 56) as u8
        });
        bytes.take(len).collect()
    }

    #[test]
    fn only_long_inputs_that_repeat_nothing_are_left_alone() {
        for len in [SAMPLED_BYTES, SAMPLED_BYTES + 1, 1 << 20] {
            assert!(is_incompressible(&noise(len)), "{len}");
            assert!(!is_incompressible(&b"mangrove ".repeat(len / 9 + 1)), "{len}");
        }
        assert!(!is_incompressible(&noise(SAMPLED_BYTES - 1)), "it costs little");
        assert!(!is_incompressible(&[]));
        // One compressible sample is enough.
        let mut mixed = noise(1 << 20);
        let end = mixed.len();
        mixed[end - SAMPLE_BYTES..].fill(0);
        assert!(!is_incompressible(&mixed));
    }
}
