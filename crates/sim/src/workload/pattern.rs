//! The bytes of messages: each follows from the number of its request.

/// Fills `bytes` with those of message `id`.
pub fn fill(id: u64, bytes: &mut [u8]) {
    let mut state = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let word = (state ^ state >> 29).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// The bytes of message `id`.
pub fn of(id: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fill(id, &mut bytes);
    bytes
}

/// The place of the first difference.
pub fn difference(one: &[u8], other: &[u8]) -> Option<usize> {
    if one == other {
        return None;
    }
    Some(one.iter().zip(other).position(|(a, b)| a != b).unwrap_or(one.len().min(other.len())))
}
