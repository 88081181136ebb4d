//! LZ4 in the block format of <https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>.

/// LZ4 expands at most so many times.
const MAX_EXPANSION: usize = 255;

/// Appends the compressed form of `input` to `out`; returns its length, which may exceed that of the input.
pub(crate) fn compress(input: &[u8], out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(input.len()), 0);
    let written = lz4_flex::block::compress_into(input, &mut out[start..]).unwrap_or(usize::MAX);
    out.truncate(start.saturating_add(written));
    written
}

/// The `raw_len` bytes that were compressed to `stored`; `None` if it is something else. A hostile length cannot claim much more
/// memory than there are bytes.
pub(crate) fn expand(stored: &[u8], raw_len: usize) -> Option<Vec<u8>> {
    if raw_len > stored.len().saturating_mul(MAX_EXPANSION).saturating_add(64) {
        return None;
    }
    let mut raw = vec![0; raw_len];
    let written = lz4_flex::block::decompress_into(stored, &mut raw).ok()?;
    (written == raw_len).then_some(raw)
}
