//! GGML's number formats, block by block.

use half::{bf16, f16};

/// A storage type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GgmlType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q8_0,
    Q4K,
    Q6K,
}

impl GgmlType {
    pub(super) fn from_id(id: u32) -> Result<Self, String> {
        Ok(match id {
            0 => GgmlType::F32,
            1 => GgmlType::F16,
            2 => GgmlType::Q4_0,
            3 => GgmlType::Q4_1,
            8 => GgmlType::Q8_0,
            12 => GgmlType::Q4K,
            14 => GgmlType::Q6K,
            30 => GgmlType::Bf16,
            other => {
                return Err(format!(
                    "storage type {other} is not supported; F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K and Q6_K are"
                ));
            }
        })
    }

    /// Values and bytes of one block.
    fn block(self) -> (usize, usize) {
        match self {
            GgmlType::F32 => (1, 4),
            GgmlType::F16 | GgmlType::Bf16 => (1, 2),
            GgmlType::Q4_0 => (32, 18),
            GgmlType::Q4_1 => (32, 20),
            GgmlType::Q8_0 => (32, 34),
            GgmlType::Q4K => (256, 144),
            GgmlType::Q6K => (256, 210),
        }
    }

    /// Bytes that `count` values take; `None` when they fill no whole blocks.
    pub(super) fn bytes(self, count: usize) -> Option<usize> {
        let (values, bytes) = self.block();
        count.is_multiple_of(values).then(|| count / values * bytes)
    }
}

/// The values of whole blocks.
pub(super) fn dequantise(kind: GgmlType, bytes: &[u8]) -> Vec<f32> {
    let (values, size) = kind.block();
    let mut out = Vec::with_capacity(bytes.len() / size * values);
    for block in bytes.chunks_exact(size) {
        match kind {
            GgmlType::F32 => out.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
            GgmlType::F16 => out.push(float(block, 0)),
            GgmlType::Bf16 => out.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
            GgmlType::Q4_0 => nibbles(
                &block[2..],
                |q| (f32::from(q) - 8.0) * float(block, 0),
                &mut out,
            ),
            GgmlType::Q4_1 => nibbles(
                &block[4..],
                |q| f32::from(q) * float(block, 0) + float(block, 2),
                &mut out,
            ),
            GgmlType::Q8_0 => out.extend(
                block[2..]
                    .iter()
                    .map(|q| f32::from(*q as i8) * float(block, 0)),
            ),
            GgmlType::Q4K => q4_k(block, &mut out),
            GgmlType::Q6K => q6_k(block, &mut out),
        }
    }
    out
}

fn float(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// All low nibbles, then all high ones.
fn nibbles(quants: &[u8], value: impl Fn(u8) -> f32, out: &mut Vec<f32>) {
    out.extend(quants.iter().map(|q| value(q & 0xF)));
    out.extend(quants.iter().map(|q| value(q >> 4)));
}

/// 8 sub-blocks of 32 with 6-bit scales and minima.
fn q4_k(block: &[u8], out: &mut Vec<f32>) {
    let (d, dmin, scales, quants) = (
        float(block, 0),
        float(block, 2),
        &block[4..16],
        &block[16..],
    );
    let scale_and_min = |j: usize| match j {
        0..4 => (scales[j] & 63, scales[j + 4] & 63),
        _ => (
            (scales[j + 4] & 0xF) | (scales[j - 4] >> 6 << 4),
            (scales[j + 4] >> 4) | (scales[j] >> 6 << 4),
        ),
    };
    for pair in 0..4 {
        let part = &quants[32 * pair..32 * (pair + 1)];
        for (j, shift) in [(2 * pair, 0), (2 * pair + 1, 4)] {
            let (scale, min) = scale_and_min(j);
            let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
            out.extend(
                part.iter()
                    .map(|q| scale * f32::from(q >> shift & 0xF) - min),
            );
        }
    }
}

/// 16 sub-blocks of 16 with 8-bit scales; low 4 and high 2 bits apart.
fn q6_k(block: &[u8], out: &mut Vec<f32>) {
    let (low, high, scales, d) = (
        &block[..128],
        &block[128..192],
        &block[192..208],
        float(block, 208),
    );
    for half in 0..2 {
        let (low, high, scales) = (&low[64 * half..], &high[32 * half..], &scales[8 * half..]);
        for quarter in 0..4 {
            for l in 0..32 {
                let nibble = low[l + 32 * (quarter % 2)] >> (4 * (quarter / 2)) & 0xF;
                let bits = high[l] >> (2 * quarter) & 3;
                let q = f32::from(nibble | bits << 4) - 32.0;
                out.push(d * f32::from(scales[l / 16 + 2 * quarter] as i8) * q);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::{Path, PathBuf};

    fn golden() -> Value {
        let root = match std::env::var_os("VERL_REFERENCE_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference"),
        };
        let text = std::fs::read_to_string(root.join("golden/quant/smollm2-gguf.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn blocks_of_a_real_file() {
        let golden = golden();
        let cases = golden["cases"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| c["inputs"]["bytes"].is_array());
        for case in cases {
            let kind = match case["config"]["type"].as_str().unwrap() {
                "Q4_1" => GgmlType::Q4_1,
                "Q8_0" => GgmlType::Q8_0,
                "F32" => GgmlType::F32,
                other => panic!("no test for {other}"),
            };
            let number = |v: &Value| v.as_f64().unwrap();
            let bytes: Vec<u8> = case["inputs"]["bytes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|b| number(b) as u8)
                .collect();
            let values = case["outputs"]["values"]["data"].as_array().unwrap();
            let want: Vec<f32> = values.iter().map(|v| number(v) as f32).collect();
            assert_eq!(dequantise(kind, &bytes), want, "{}", case["desc"]);
        }
    }

    #[test]
    fn q4_0_is_centred() {
        let mut block = vec![0u8; 18];
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[2] = 0xF0;
        let values = dequantise(GgmlType::Q4_0, &block);
        assert_eq!((values[0], values[16], values[1]), (-4.0, 3.5, -4.0));
    }

    #[test]
    fn k_quants_use_their_sub_block_scales() {
        // Sub-blocks 0 and 5 of Q4_K: a plain scale, and one whose high bits
        // stand elsewhere.
        let mut block = vec![0u8; 144];
        block[..2].copy_from_slice(&f16::from_f32(1.0).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(1.0).to_le_bytes());
        block[4] = 3;
        block[8] = 1;
        block[4 + 1] = 0b0100_0000;
        block[4 + 9] = 0x02;
        block[16] = 0x05;
        block[16 + 64] = 0x70;
        let values = dequantise(GgmlType::Q4K, &block);
        assert_eq!(values[0], 3.0 * 5.0 - 1.0);
        assert_eq!(values[5 * 32], 18.0 * 7.0, "scale 2 with high bits 1 is 18");

        let mut block = vec![0u8; 210];
        block[208..].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[192] = 2;
        block[0] = 0x03;
        block[128] = 0b01;
        let values = dequantise(GgmlType::Q6K, &block);
        assert_eq!(values[0], 0.5 * 2.0 * (19.0 - 32.0));
    }
}
