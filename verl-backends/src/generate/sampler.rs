//! Drawing one token from a row of logits, on the host.

use rand::{Rng, RngExt as _};
use verl_core::rollout::SamplingParams;
use verl_core::types::TokenId;

/// Cumulative probabilities this close to `top_p` count as having reached it:
/// the sum of f32 probabilities that should equal `p` may fall short of it in
/// the last digits.
const TOP_P_TOLERANCE: f64 = 1e-6;

/// A drawn token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// The token.
    pub token: TokenId,
    /// Its log-prob under the distribution it was drawn from. A greedy choice
    /// reports the log-prob at temperature 1, since its own is always 0.
    pub log_prob: f32,
    /// Its log-prob at temperature 1 without filters.
    pub untempered: f32,
}

/// Temperature and filters, applied in the order top-k, top-p, min-p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    temperature: f64,
    top_k: usize,
    top_p: f64,
    min_p: f64,
}

impl From<&SamplingParams> for Sampler {
    fn from(p: &SamplingParams) -> Self {
        Sampler {
            temperature: f64::from(p.temperature),
            top_k: p.top_k,
            top_p: f64::from(p.top_p),
            min_p: f64::from(p.min_p),
        }
    }
}

impl Sampler {
    /// Draws a token. `logits` holds the vocabulary without padding entries.
    ///
    /// Ties in the order of probabilities are broken by the lower id, so the
    /// result depends on the logits and the random number alone.
    pub fn draw(&self, logits: &[f32], rng: &mut impl Rng) -> Draw {
        let best = argmax(logits);
        let untempered = |token: usize| {
            f64::from(logits[token]) - log_sum_exp(logits, f64::from(logits[best]), 1.0)
        };
        let (token, log_prob) = match self.temperature {
            0.0 => (best, untempered(best)),
            _ => self.sample(logits, f64::from(logits[best]), rng.random()),
        };
        let plain = self.temperature == 0.0 || (self.temperature == 1.0 && !self.filters());
        let untempered = if plain { log_prob } else { untempered(token) };
        Draw {
            token: token as TokenId,
            log_prob: log_prob as f32,
            untempered: untempered as f32,
        }
    }

    fn filters(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }

    /// Token and log-prob for the uniform number `u`.
    fn sample(&self, logits: &[f32], max: f64, u: f64) -> (usize, f64) {
        let weight = |i: usize| ((f64::from(logits[i]) - max) / self.temperature).exp();
        let pick = |kept: &mut dyn Iterator<Item = usize>, total: f64| {
            let (mut reached, mut chosen) = (0.0, 0);
            for i in kept {
                let w = weight(i);
                if w > 0.0 {
                    chosen = i;
                }
                reached += w;
                if reached > u * total {
                    break;
                }
            }
            (chosen, weight(chosen).ln() - total.ln())
        };
        if self.filters() {
            let kept = self.kept(logits, max);
            let total = kept.iter().map(|&i| weight(i)).sum();
            pick(&mut kept.into_iter(), total)
        } else {
            let total = (0..logits.len()).map(weight).sum();
            pick(&mut (0..logits.len()), total)
        }
    }

    /// Ids that survive the filters, most likely first; never empty.
    fn kept(&self, logits: &[f32], max: f64) -> Vec<usize> {
        let order = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
        let mut ids: Vec<usize> = (0..logits.len()).collect();
        if self.top_k > 0 && self.top_k < ids.len() {
            ids.select_nth_unstable_by(self.top_k - 1, order);
            ids.truncate(self.top_k);
        }
        ids.sort_unstable_by(order);
        let weight = |i: usize| ((f64::from(logits[i]) - max) / self.temperature).exp();
        if self.top_p < 1.0 {
            let total: f64 = ids.iter().map(|&i| weight(i)).sum();
            let mut reached = 0.0;
            let crossing = ids.iter().position(|&i| {
                reached += weight(i);
                reached >= (self.top_p - TOP_P_TOLERANCE) * total
            });
            ids.truncate(crossing.map_or(ids.len(), |i| i + 1));
        }
        if self.min_p > 0.0 {
            // The most likely token has weight 1.
            let enough = ids.iter().take_while(|&&i| weight(i) >= self.min_p).count();
            ids.truncate(enough.max(1));
        }
        ids
    }
}

fn argmax(logits: &[f32]) -> usize {
    (1..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best })
}

fn log_sum_exp(logits: &[f32], max: f64, temperature: f64) -> f64 {
    max + logits
        .iter()
        .map(|&z| ((f64::from(z) - max) / temperature).exp())
        .sum::<f64>()
        .ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn sampler(temperature: f64, top_k: usize, top_p: f64, min_p: f64) -> Sampler {
        Sampler {
            temperature,
            top_k,
            top_p,
            min_p,
        }
    }

    fn logits_of(probs: &[f64]) -> Vec<f32> {
        probs.iter().map(|p| p.ln() as f32).collect()
    }

    #[test]
    fn nucleus_keeps_the_crossing_token_and_no_more() {
        let logits = logits_of(&[0.5, 0.3, 0.15, 0.05]);
        for (p, kept) in [(0.6, 2), (0.8, 2), (0.85, 3), (1.0, 4)] {
            let s = sampler(1.0, 0, p, 1e-9);
            assert_eq!(s.kept(&logits, f64::from(logits[0])).len(), kept, "p = {p}");
        }
        assert_eq!(
            sampler(1.0, 1, 0.8, 0.0).kept(&logits, f64::from(logits[0])),
            [0]
        );
    }

    #[test]
    fn log_probs_are_those_of_the_tempered_distribution() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let s = sampler(0.5, 0, 1.0, 0.0);
        let draw = std::iter::repeat_with(|| s.draw(&[2.0, 1.0, 0.0], &mut rng))
            .find(|d| d.token == 0)
            .unwrap();
        assert!((draw.log_prob + 0.1429).abs() < 1e-4 && (draw.untempered + 0.4076).abs() < 1e-4);
    }

    #[test]
    fn filtered_log_probs_are_renormalised() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let logits = logits_of(&[0.5, 0.3, 0.15, 0.05]);
        let draw = sampler(1.0, 2, 1.0, 0.0).draw(&logits, &mut rng);
        let p = [0.625f32, 0.375][draw.token as usize];
        assert!((draw.log_prob - p.ln()).abs() < 1e-5);
    }

    #[test]
    fn frequencies_follow_the_probabilities() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let logits = logits_of(&[0.5, 0.3, 0.15, 0.05]);
        let mut counts = [0f64; 4];
        for _ in 0..20_000 {
            counts[sampler(1.0, 0, 1.0, 0.0).draw(&logits, &mut rng).token as usize] += 1.0;
        }
        for (count, p) in counts.iter().zip([0.5, 0.3, 0.15, 0.05]) {
            assert!((count / 20_000.0 - p).abs() < 0.015, "{counts:?}");
        }
    }

    #[test]
    fn impossible_tokens_are_never_drawn() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let logits = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY];
        for _ in 0..1000 {
            assert_eq!(sampler(1.0, 0, 1.0, 0.0).draw(&logits, &mut rng).token, 1);
        }
    }
}
