//! Drawing a batch from a batch.

use super::{Batch, Group};
use crate::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

impl Batch {
    /// Draws as many trajectories as there are, with replacement, each with a
    /// probability proportional to its weight. Every trajectory stays in its
    /// group, groups keep their order, and those left empty vanish. The same
    /// seed draws the same batch.
    ///
    /// # Errors
    /// [`Error::Length`] when there is not one weight for each trajectory,
    /// [`Error::Invalid`] when one is negative or not finite, or all are 0.
    pub fn resample(&self, weights_s: &[f32], seed: u64) -> Result<Batch> {
        let (expected, got) = (self.len(), weights_s.len());
        if expected != got {
            let what = "sampling weights".into();
            return Err(Error::Length {
                what,
                expected,
                got,
            });
        }
        if let Some(bad) = weights_s.iter().find(|w| !(w.is_finite() && **w >= 0.0)) {
            return Err(Error::invalid(format!(
                "a sampling weight is {bad}; weights must be 0 or positive"
            )));
        }
        let mut counts = draw(weights_s, seed)?.into_iter();
        let mut groups = Vec::new();
        for group in self.groups() {
            let counted = group.trajectories().iter().zip(&mut counts);
            let drawn: Vec<_> = counted.flat_map(|(t, n)| vec![t.clone(); n]).collect();
            if !drawn.is_empty() {
                let mut drawn = Group::new(group.id(), drawn)?;
                group.baseline().map_or(Ok(()), |b| drawn.set_baseline(b))?;
                groups.push(drawn);
            }
        }
        Ok(Batch::new(groups))
    }
}

/// How often each index is drawn, in as many draws as there are weights.
fn draw(weights: &[f32], seed: u64) -> Result<Vec<usize>> {
    let mut total = 0f64;
    let add = |w: &f32| {
        total += f64::from(*w);
        total
    };
    let ends: Vec<f64> = weights.iter().map(add).collect();
    let mut counts = vec![0; weights.len()];
    if !weights.is_empty() && total <= 0.0 {
        return Err(Error::invalid(
            "all sampling weights are 0; nothing can be drawn",
        ));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in weights {
        // Rounding must not carry the product up to the end of the last one.
        let at = (rng.random::<f64>() * total).min(total.next_down());
        counts[ends.partition_point(|end| *end <= at)] += 1;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_weights_and_the_seed() {
        let weights: Vec<f32> = (0..4000).map(|i| [0.0, 1.0, 3.0][i % 3]).collect();
        let counts = draw(&weights, 7).unwrap();
        assert_eq!(counts, draw(&weights, 7).unwrap());
        assert_ne!(counts, draw(&weights, 8).unwrap());
        assert_eq!(counts.iter().sum::<usize>(), 4000);
        let share = |k| counts.iter().skip(k).step_by(3).sum::<usize>();
        assert_eq!(share(0), 0);
        let ratio = share(2) as f64 / share(1) as f64;
        assert!((ratio - 3.0).abs() < 0.3, "{ratio}");
    }

    #[test]
    fn weights_that_allow_no_draw_are_refused() {
        let message = draw(&[0.0, 0.0], 1).unwrap_err().to_string();
        assert_eq!(message, "all sampling weights are 0; nothing can be drawn");
        let message = Batch::default()
            .resample(&[1.0], 1)
            .unwrap_err()
            .to_string();
        assert_eq!(message, "sampling weights: expected 0 values, got 1");
        assert!(Batch::default().resample(&[], 1).unwrap().is_empty());
    }
}
