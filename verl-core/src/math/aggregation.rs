//! How per-token losses become one number.

use serde::{Deserialize, Serialize};

/// Sizes of the whole mini-batch, over all micro-batches and ranks. Dividing
/// by them makes any split into micro-batches give the same gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Denominators {
    /// Tokens the policy produced.
    pub tokens: usize,
    /// Sequences with at least one such token.
    pub sequences: usize,
}

impl Denominators {
    /// Counts sequences given their numbers of policy tokens.
    pub fn count(lengths: impl IntoIterator<Item = usize>) -> Self {
        let add = |d: Denominators, n: usize| Denominators {
            tokens: d.tokens + n,
            sequences: d.sequences + usize::from(n > 0),
        };
        lengths.into_iter().fold(Denominators::default(), add)
    }
}

/// Aggregation of per-token losses. Names are verl's `loss_agg_mode`.
///
/// Sequences without a policy token are not counted. A batch without any has
/// aggregate 0 (verl: NaN).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossAggregation {
    /// Sum over tokens / number of tokens (DAPO).
    TokenMean,
    /// Sum over tokens: the step grows with the batch.
    TokenSum,
    /// Mean over sequences of the sum over tokens.
    SeqMeanTokenSum,
    /// Mean over sequences of the mean over tokens (GRPO).
    SeqMeanTokenMean,
    /// Mean over sequences of the sum over tokens divided by a constant
    /// length (Dr. GRPO).
    SeqMeanTokenSumNorm(f32),
}

impl LossAggregation {
    /// The weight of each packed token, so that the aggregate is
    /// `sum(weight * loss)`; `lengths` are the sequences' policy tokens.
    ///
    /// # Example
    /// A row of four tokens with loss 1 each and a row of one token with loss 6:
    /// ```
    /// use verl_core::math::{Denominators, LossAggregation::*};
    /// let losses = [1.0, 1.0, 1.0, 1.0, 6.0f32];
    /// let sizes = Denominators::count([4, 1]);
    /// let agg = |mode: verl_core::math::LossAggregation| -> f32 {
    ///     mode.token_weights(&[4, 1], &sizes).iter().zip(losses).map(|(w, l)| w * l).sum()
    /// };
    /// assert_eq!(agg(TokenMean), 2.0);
    /// assert_eq!(agg(TokenSum), 10.0);
    /// assert_eq!(agg(SeqMeanTokenMean), 3.5);
    /// assert_eq!(agg(SeqMeanTokenSum), 5.0);
    /// assert_eq!(agg(SeqMeanTokenSumNorm(8.0)), 0.625);
    /// ```
    pub fn token_weights(self, lengths: &[usize], sizes: &Denominators) -> Vec<f32> {
        let sequences = sizes.sequences.max(1) as f32;
        let weight = |length: usize| match self {
            LossAggregation::TokenMean => 1.0 / sizes.tokens.max(1) as f32,
            LossAggregation::TokenSum => 1.0,
            LossAggregation::SeqMeanTokenSum => 1.0 / sequences,
            LossAggregation::SeqMeanTokenMean => 1.0 / (sequences * length as f32),
            LossAggregation::SeqMeanTokenSumNorm(norm) => 1.0 / (sequences * norm),
        };
        lengths
            .iter()
            .flat_map(|&n| std::iter::repeat_n(if n > 0 { weight(n) } else { 0.0 }, n))
            .collect()
    }
}
