//! The 8-bit numbers of dynamic quantisation (arXiv:2110.02861, section 2.2):
//! seven decades below 1, each divided more finely than the one below it.

use std::sync::LazyLock;

/// The values of the 256 codes, ascending, with the borders between them.
#[derive(Debug)]
pub(crate) struct DynamicMap {
    /// What each code stands for.
    pub(crate) values: [f32; 256],
    /// The least number that takes each code.
    pub(crate) borders: [f32; 256],
}

const DECADES: i32 = 7;

/// Numbers from -1 to 1.
pub(crate) static SIGNED: LazyLock<DynamicMap> = LazyLock::new(|| {
    let positive: Vec<f64> = magnitudes(1);
    let negative = positive.iter().map(|value| -value);
    DynamicMap::new(negative.chain(positive.iter().copied()).collect())
});

/// Numbers from 0 to 1. Only 0 itself takes the code of 0, so that a small
/// second moment never leaves an update without a denominator.
pub(crate) static UNSIGNED: LazyLock<DynamicMap> = LazyLock::new(|| {
    let mut map = DynamicMap::new(magnitudes(2));
    map.borders[1] = f32::MIN_POSITIVE;
    map
});

/// The centres of the cells: `first` in the lowest decade, twice as many in
/// each one above.
fn magnitudes(first: usize) -> Vec<f64> {
    let decade = |i: i32| {
        let cells = first << i;
        let scale = 10f64.powi(i + 1 - DECADES);
        (0..cells).map(move |cell| scale * (0.1 + 0.9 * (cell as f64 + 0.5) / cells as f64))
    };
    (0..DECADES).flat_map(decade).collect()
}

impl DynamicMap {
    /// The map of 254 values, to which 0 and 1 are added.
    fn new(mut values: Vec<f64>) -> Self {
        values.extend([0.0, 1.0]);
        values.sort_by(f64::total_cmp);
        let border = |i: usize| match i {
            0 => f32::NEG_INFINITY,
            _ => (0.5 * (values[i - 1] + values[i])) as f32,
        };
        DynamicMap {
            values: std::array::from_fn(|i| values[i] as f32),
            borders: std::array::from_fn(border),
        }
    }

    /// The code of the value nearest to `x`.
    #[cfg(any(feature = "flex", test))]
    pub(crate) fn nearest(&self, x: f32) -> u8 {
        let below = self.borders.partition_point(|border| *border <= x);
        below.saturating_sub(1) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_reference() {
        // bitsandbytes.functional.create_dynamic_map.
        let signed = &SIGNED.values;
        assert_eq!((signed[127], signed[255]), (0.0, 1.0));
        assert_eq!(signed[128], 0.55e-6);
        assert_eq!(signed[129..131], [3.25e-6, 7.75e-6]);
        assert_eq!(signed[254], 0.992_968_75);
        assert_eq!(signed[0], -0.992_968_75);
        let unsigned = &UNSIGNED.values;
        assert_eq!((unsigned[0], unsigned[255]), (0.0, 1.0));
        assert_eq!(unsigned[1..3], [0.325e-6, 0.775e-6]);
        assert_eq!(unsigned[254], 0.996_484_4);
    }

    #[test]
    fn every_value_keeps_its_code() {
        for map in [&*SIGNED, &*UNSIGNED] {
            assert!(map.values.is_sorted() && map.borders.is_sorted());
            for (code, value) in map.values.iter().enumerate() {
                assert_eq!(usize::from(map.nearest(*value)), code);
            }
        }
    }

    #[test]
    fn only_zero_is_a_second_moment_of_zero() {
        assert_eq!(UNSIGNED.nearest(0.0), 0);
        assert_eq!(UNSIGNED.nearest(1e-30), 1);
    }
}
