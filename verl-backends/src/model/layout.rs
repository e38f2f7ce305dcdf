//! How packed tokens form sequences.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use std::collections::BTreeMap;
use std::ops::Range;

/// A run of consecutive packed tokens that belong to one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Number of tokens, at least one.
    pub len: usize,
    /// Number of an earlier segment whose tokens come before these: a prompt
    /// that several answers share and that is encoded once.
    pub prefix: Option<usize>,
}

impl Segment {
    /// A sequence of its own.
    pub fn whole(len: usize) -> Self {
        Segment { len, prefix: None }
    }

    /// A continuation of an earlier segment.
    pub fn after(prefix: usize, len: usize) -> Self {
        Segment {
            len,
            prefix: Some(prefix),
        }
    }
}

/// The arrangement of the packed tokens of one forward pass.
#[derive(Debug)]
pub struct Layout {
    /// Position of each packed token within its sequence.
    pub positions: Vec<usize>,
    /// Where each segment's tokens lie.
    pub segments: Vec<Range<usize>>,
    /// Where the tokens lie that come before each segment's own.
    pub prefixes: Vec<Range<usize>>,
    /// The rectangles in which attention is computed.
    pub units: Vec<AttentionUnit>,
    /// For each packed token, its row among the units' outputs put one after
    /// another; `None` when that is the identity.
    pub unpack: Option<Tensor<1, Int>>,
}

/// Sequences of similar length, attended to as one rectangle.
#[derive(Debug)]
pub struct AttentionUnit {
    /// Number of sequences.
    pub batch: usize,
    /// Length of the longest of them.
    pub len: usize,
    /// The packed tokens, `[batch * len]`.
    pub rows: Rows,
    /// Packed rows of the prefix that all of them share.
    pub prefix: Range<usize>,
    device: Device,
}

/// Which packed tokens fill a rectangle.
#[derive(Debug)]
pub enum Rows {
    /// Consecutive ones from here.
    From(usize),
    /// These; short sequences are filled up with their own last token, whose
    /// surplus outputs are dropped.
    Gather(Tensor<1, Int>),
}

impl Layout {
    /// Arranges segments that are packed one after another.
    ///
    /// Segments after the same prefix, and whole sequences of similar length,
    /// share a rectangle.
    pub fn new(segments: &[Segment], device: &Device) -> Self {
        let mut ranges: Vec<Range<usize>> = Vec::with_capacity(segments.len());
        let mut positions = Vec::new();
        for segment in segments {
            let first = segment.prefix.map_or(0, |p| ranges[p].len());
            ranges.push(positions.len()..positions.len() + segment.len);
            positions.extend(first..first + segment.len);
        }
        let units: Vec<Bucket> = buckets(segments);
        let mut unpack = vec![0i64; positions.len()];
        let mut next = 0;
        for bucket in &units {
            for &s in &bucket.members {
                for (offset, row) in ranges[s].clone().enumerate() {
                    unpack[row] = (next + offset) as i64;
                }
                next += bucket.len;
            }
        }
        // The units' outputs also hold the surplus of short sequences.
        let identity =
            next == unpack.len() && unpack.iter().enumerate().all(|(i, &row)| i as i64 == row);
        Layout {
            units: units.iter().map(|b| b.unit(&ranges, device)).collect(),
            unpack: (!identity).then(|| indices(unpack, device)),
            positions,
            prefixes: segments
                .iter()
                .map(|s| s.prefix.map_or(0..0, |p| ranges[p].clone()))
                .collect(),
            segments: ranges,
        }
    }

    /// Number of packed tokens.
    pub fn tokens(&self) -> usize {
        self.positions.len()
    }
}

impl AttentionUnit {
    /// Takes this rectangle's tokens out of a packed tensor:
    /// `[n, heads, d] -> [batch, len, heads, d]`.
    pub fn take(&self, packed: &Tensor<3>) -> Tensor<4> {
        let [_, heads, d] = packed.dims();
        let n = self.batch * self.len;
        let rows = match &self.rows {
            Rows::From(start) => packed.clone().narrow(0, *start, n),
            Rows::Gather(index) => packed.clone().select(0, index.clone()),
        };
        rows.reshape([self.batch, self.len, heads, d])
    }

    /// Which keys each query must not see, `[len, prefix + len]`: later ones,
    /// and those before the window. `None` when every query sees every key.
    pub fn mask(&self, window: Option<usize>) -> Option<Tensor<2, Bool>> {
        let (p, t) = (self.prefix.len(), self.len);
        let hides = t > 1 || window.is_some_and(|w| p + t > w);
        let hidden = |q: usize, k: usize| k > q || window.is_some_and(|w| k + w <= q);
        hides.then(|| {
            let values: Vec<bool> = (p..p + t)
                .flat_map(|q| (0..p + t).map(move |k| hidden(q, k)))
                .collect();
            Tensor::from_data(TensorData::new(values, [t, p + t]), &self.device)
        })
    }
}

/// Segments that will share a rectangle.
struct Bucket {
    prefix: Option<usize>,
    len: usize,
    members: Vec<usize>,
}

impl Bucket {
    /// Whether a shorter sequence may join without wasting much.
    fn admits(&self, len: usize) -> bool {
        self.len <= len + 16 || self.len * 3 <= len * 4
    }

    fn unit(&self, ranges: &[Range<usize>], device: &Device) -> AttentionUnit {
        let start = ranges[self.members[0]].start;
        let next_to_each_other = self
            .members
            .iter()
            .enumerate()
            .all(|(i, &s)| ranges[s] == (start + i * self.len..start + (i + 1) * self.len));
        let rows = if next_to_each_other {
            Rows::From(start)
        } else {
            let row = |s: usize, i: usize| ranges[s].start + i.min(ranges[s].len() - 1);
            let all = self
                .members
                .iter()
                .flat_map(|&s| (0..self.len).map(move |i| row(s, i) as i64));
            Rows::Gather(indices(all.collect(), device))
        };
        AttentionUnit {
            batch: self.members.len(),
            len: self.len,
            rows,
            prefix: self.prefix.map_or(0..0, |p| ranges[p].clone()),
            device: device.clone(),
        }
    }
}

fn buckets(segments: &[Segment]) -> Vec<Bucket> {
    let mut by_prefix: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (i, segment) in segments.iter().enumerate() {
        by_prefix.entry(segment.prefix).or_default().push(i);
    }
    let mut buckets: Vec<Bucket> = Vec::new();
    for (prefix, mut members) in by_prefix {
        members.sort_by_key(|&s| std::cmp::Reverse(segments[s].len));
        for s in members {
            let len = segments[s].len;
            match buckets
                .last_mut()
                .filter(|b| b.prefix == prefix && b.admits(len))
            {
                Some(bucket) => bucket.members.push(s),
                None => buckets.push(Bucket {
                    prefix,
                    len,
                    members: vec![s],
                }),
            }
        }
    }
    buckets
}

fn indices(values: Vec<i64>, device: &Device) -> Tensor<1, Int> {
    let n = values.len();
    Tensor::from_data(TensorData::new(values, [n]), device)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn positions_continue_after_a_prefix() {
        let segments = [
            Segment::whole(3),
            Segment::after(0, 2),
            Segment::after(0, 1),
        ];
        let layout = Layout::new(&segments, &Device::flex());
        assert_eq!(layout.positions, [0, 1, 2, 3, 4, 3]);
        assert_eq!(layout.units.len(), 2);
        assert_eq!((layout.units[1].batch, layout.units[1].len), (2, 2));
        assert_eq!(layout.units[1].prefix, 0..3);
    }

    #[test]
    fn equal_lengths_need_no_gather() {
        let layout = Layout::new(&[Segment::whole(4), Segment::whole(4)], &Device::flex());
        assert!(matches!(layout.units[0].rows, Rows::From(0)));
        assert!(layout.unpack.is_none());
    }

    #[test]
    fn a_short_last_sequence_has_its_surplus_dropped() {
        let layout = Layout::new(&[Segment::whole(4), Segment::whole(1)], &Device::flex());
        assert_eq!(layout.units[0].batch * layout.units[0].len, 8);
        let unpack: Vec<i64> = layout.unpack.unwrap().into_data().iter::<i64>().collect();
        assert_eq!(unpack, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_window_hides_what_lies_before_it() {
        let layout = Layout::new(&[Segment::whole(3)], &Device::flex());
        let mask: Vec<bool> = layout.units[0]
            .mask(Some(2))
            .unwrap()
            .into_data()
            .iter::<bool>()
            .collect();
        assert_eq!(
            mask,
            [false, true, true, false, false, true, true, false, false]
        );
    }
}
