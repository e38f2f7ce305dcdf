//! Two 4-bit codes per byte; the high half comes first.

/// Writes the values of consecutive codes, the first being number `first`.
/// `pair` gives the values of the two codes of a byte.
#[inline]
pub(super) fn unpack(codes: &[u8], first: usize, out: &mut [f32], pair: impl Fn(u8) -> [f32; 2]) {
    let odd = (first % 2).min(out.len());
    let (start, out) = out.split_at_mut(odd);
    if let [value] = start {
        *value = pair(codes[first / 2])[1];
    }
    let (pairs, last) = out.as_chunks_mut::<2>();
    let (whole, rest) = codes[(first + odd) / 2..].split_at(pairs.len());
    for (values, byte) in pairs.iter_mut().zip(whole) {
        *values = pair(*byte);
    }
    if let [value] = last {
        *value = pair(rest[0])[0];
    }
}

/// Code number `index`.
pub(super) fn code(codes: &[u8], index: usize) -> u8 {
    let byte = codes[index / 2];
    match index.is_multiple_of(2) {
        true => byte >> 4,
        false => byte & 0xF,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_and_length_reads_the_same_codes() {
        let codes = [0x12, 0x34, 0x56, 0x70];
        assert!((0..7).all(|i| code(&codes, i) == i as u8 + 1));
        for first in 0..7 {
            for len in 0..=7 - first {
                let mut out = vec![0.0; len];
                unpack(&codes, first, &mut out, |byte| {
                    [f32::from(byte >> 4), f32::from(byte & 0xF)]
                });
                let want: Vec<f32> = (first..first + len)
                    .map(|i| f32::from(code(&codes, i)))
                    .collect();
                assert_eq!(out, want, "{len} codes from {first}");
            }
        }
    }
}
