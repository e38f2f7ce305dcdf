//! The 256 levels of bitsandbytes' signed dynamic map.

use std::sync::LazyLock;

static LEVELS: LazyLock<[f32; 256]> = LazyLock::new(levels);

/// The levels in ascending order, from -0.993 to 1.
///
/// A dynamic tree of 8 bits (arXiv:2110.02861): decade `i` of seven, which
/// ends at `10^(i - 6)`, has `2^i` levels of either sign, evenly spaced; 0 and
/// 1 are levels too. Equal to `create_dynamic_map(signed=True)` to the last
/// bit.
pub fn dynamic_levels() -> &'static [f32; 256] {
    &LEVELS
}

/// Number of the nearest level; the lower one of two equally near.
pub(super) fn nearest(value: f32) -> u8 {
    let levels = dynamic_levels();
    let above = levels.partition_point(|level| *level < value).min(255);
    let below = above.saturating_sub(1);
    match levels[above] - value < value - levels[below] {
        true => above as u8,
        false => below as u8,
    }
}

fn levels() -> [f32; 256] {
    let mut levels = [0.0; 256];
    levels[255] = 1.0;
    let mut next = 0;
    for (decade, end) in [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
        .into_iter()
        .enumerate()
    {
        let count = 1 << decade;
        for i in 0..count {
            let middle = end * ((boundary(i, count) + boundary(i + 1, count)) / 2.0);
            (levels[next], levels[next + 1]) = (middle, -middle);
            next += 2;
        }
    }
    levels.sort_by(f32::total_cmp);
    levels
}

/// Boundary `i` of `0.1..=1` in `count` parts, rounded as `torch.linspace`
/// rounds it: reckoned from the nearer end, in one fused operation.
fn boundary(i: usize, count: usize) -> f32 {
    let (start, end) = (0.1f32, 1.0f32);
    let step = (end - start) / count as f32;
    match i < count.div_ceil(2) {
        true => step.mul_add(i as f32, start),
        false => step.mul_add(-((count - i) as f32), end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_distinct_and_hold_0_and_1() {
        let levels = dynamic_levels();
        assert!(levels.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((levels[127], levels[255]), (0.0, 1.0));
    }

    #[test]
    fn every_level_is_nearest_to_itself_and_ends_are_kept() {
        for (i, level) in dynamic_levels().iter().enumerate() {
            assert_eq!(usize::from(nearest(*level)), i);
        }
        assert_eq!((nearest(-5.0), nearest(5.0)), (0, 255));
    }
}
