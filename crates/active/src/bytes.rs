//! Bytes as words, which are little-endian.

/// Bytes as words, the last of which zeros fill up.
#[inline]
pub(crate) fn to_words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let whole = bytes.chunks_exact(8);
    let rest = whole.remainder();
    let last = (!rest.is_empty()).then(|| {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        u64::from_le_bytes(word)
    });
    whole.map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default())).chain(last)
}
