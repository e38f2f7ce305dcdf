//! Optimal token baseline: at each token, the baseline that leaves the policy
//! gradient the least variance.
//!
//! The norm of the gradient at a token is that of the logits' gradient, which
//! needs two numbers of the distribution only; summed from the answer's start
//! it weighs the returns of the group's answers at the same token:
//!
//! ```text
//! w_t = 1 - 2 pi_t + sum over the vocabulary of pi^2        W_t = w_1 + .. + w_t
//! G_t = r_t + G_{t+1}
//! B_t = sum_j(W_t,j G_t,j) / (sum_j(W_t,j) + epsilon)       A_t,i = G_t,i - B_t
//! ```
//!
//! `t` counts the policy's own tokens, so that the k-th token of one answer is
//! compared with the k-th of the others, wherever tools or users spoke in
//! between; `j` runs over the answers that long. Under a rollout correction
//! `w_t` is multiplied by the square of the importance weight.
//!
//! # Paper
//! arXiv:2602.07078.
//!
//! # Differences from verl
//! - One estimator is both `optimal_token_baseline` and
//!   `tir_optimal_token_baseline`: the first compares positions rather than
//!   tokens, and so drops baselines where observations lie in between.
//! - `B_t` is taken around the mean of the returns, so that equal returns give
//!   exactly 0 and vanishing weights give the plain mean; verl then has 0.
//! - An answer alone in its group has nothing to be compared with and gets 0;
//!   `singleton_groups: raw` gives it its return, as verl does.

use crate::grpo::Singleton;
use crate::options::require;
use crate::tokens::{pick, spread};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Advantages, Requirements};
use verl_core::math::runs;
use verl_core::types::{Batch, Column, Group, Trajectory};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimalTokenBaselineConfig {
    /// Whether the longest answer of a group has its return as advantage where
    /// no other is as long; otherwise it has 0 there.
    pub handle_zero_tail: bool,
    /// Added to the sum of the weights.
    pub epsilon: f64,
    /// What an answer alone in its group gets.
    pub singleton_groups: Singleton,
}

impl Default for OptimalTokenBaselineConfig {
    fn default() -> Self {
        OptimalTokenBaselineConfig {
            handle_zero_tail: true,
            epsilon: 1e-8,
            singleton_groups: Singleton::Zero,
        }
    }
}

impl OptimalTokenBaselineConfig {
    /// The estimator.
    ///
    /// # Errors
    /// [`Error::Config`](verl_core::Error::Config) when `epsilon` is out of
    /// range.
    pub fn build(&self) -> Result<OptimalTokenBaseline> {
        let ok = self.epsilon.is_finite() && self.epsilon > 0.0;
        require("epsilon", self.epsilon, ok, "positive")?;
        Ok(OptimalTokenBaseline(self.clone()))
    }
}

/// Returns and weights of one answer's policy tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedReturns {
    /// `G_t`.
    pub returns: Vec<f32>,
    /// `W_t`.
    pub weights: Vec<f64>,
}

/// The estimator.
///
/// # Example
/// Two answers of one token. The second was three times as uncertain, so that
/// the baseline is `(1 * 0 + 3 * 4) / 4`:
/// ```
/// use verl_algos::optimal_token_baseline::{OptimalTokenBaselineConfig, WeightedReturns};
/// let estimator = OptimalTokenBaselineConfig::default().build()?;
/// let answers = [(0.0, 0.25), (4.0, 0.75)].map(|(r, w)| WeightedReturns {
///     returns: vec![r],
///     weights: vec![w],
/// });
/// let advantages = estimator.group(&answers);
/// assert!((advantages[0][0] + 3.0).abs() < 1e-6 && (advantages[1][0] - 1.0).abs() < 1e-6);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct OptimalTokenBaseline(pub OptimalTokenBaselineConfig);

const NAME: &str = "optimal_token_baseline";

impl OptimalTokenBaseline {
    /// Advantages of the policy tokens of one group's answers.
    pub fn group(&self, answers: &[WeightedReturns]) -> Vec<Vec<f32>> {
        let tokens = |a: &WeightedReturns| a.returns.len();
        let members = answers.iter().filter(|a| tokens(a) > 0).count();
        let longest = answers.iter().map(tokens).max().unwrap_or(0);
        let keep_alone = match members {
            1 => self.0.singleton_groups == Singleton::Raw,
            _ => self.0.handle_zero_tail,
        };
        let mut baselines = self.baselines(answers, longest);
        if keep_alone {
            // Where a single answer is left, it is compared with nothing.
            let others = answers.iter().map(tokens).filter(|n| *n < longest).max();
            let ties = answers.iter().filter(|a| tokens(a) == longest).count();
            if ties == 1 {
                baselines[others.unwrap_or(0)..].fill(0.0);
            }
        }
        let less = |(g, b): (&f32, &f64)| (f64::from(*g) - b) as f32;
        let row = |a: &WeightedReturns| a.returns.iter().zip(&baselines).map(less).collect();
        answers.iter().map(row).collect()
    }

    /// Weighted means of the returns at each token, around the plain mean. All
    /// tokens of an answer at once, so that they share the processor's lanes.
    fn baselines(&self, answers: &[WeightedReturns], longest: usize) -> Vec<f64> {
        let (mut means, mut members) = (vec![0f64; longest], vec![0f64; longest]);
        for answer in answers {
            let sums = means.iter_mut().zip(&mut members).zip(&answer.returns);
            sums.for_each(|((sum, n), g)| (*sum, *n) = (*sum + f64::from(*g), *n + 1.0));
        }
        means
            .iter_mut()
            .zip(&members)
            .for_each(|(mean, n)| *mean /= n);
        let (mut deviations, mut totals) = (vec![0f64; longest], vec![self.0.epsilon; longest]);
        for answer in answers {
            let sums = deviations.iter_mut().zip(&mut totals);
            let pairs = answer.returns.iter().zip(&answer.weights).zip(&means);
            for ((deviation, total), ((g, w), mean)) in sums.zip(pairs) {
                *deviation += w * (f64::from(*g) - mean);
                *total += w;
            }
        }
        let parts = means.iter().zip(&deviations).zip(&totals);
        parts.map(|((mean, d), total)| mean + d / total).collect()
    }

    fn answer(&self, t: &Trajectory) -> Result<WeightedReturns> {
        let log_probs = t.get(Column::OldLogProbs, NAME)?;
        let squares = t.get(Column::SumPiSquared, NAME)?;
        let importance = match t.has(Column::ImportanceWeights) {
            true => Some(t.get(Column::ImportanceWeights, NAME)?),
            false => None,
        };
        let mut weights = Vec::with_capacity(t.policy_tokens());
        let mut total = 0f64;
        let mut sum = |w: f32| {
            total += f64::from(w);
            total
        };
        for run in runs(t.response_mask()) {
            let tokens = log_probs[run.clone()].iter().zip(&squares[run.clone()]);
            let own =
                tokens.map(|(log_prob, square)| (1.0 - 2.0 * log_prob.exp() + square).max(0.0));
            match importance {
                Some(row) => weights.extend(own.zip(&row[run]).map(|(w, r)| sum(w * (r * r)))),
                None => weights.extend(own.map(&mut sum)),
            }
        }
        let mut returns = pick(t, t.get(Column::TokenRewards, NAME)?);
        let mut ahead = 0f64;
        for reward in returns.iter_mut().rev() {
            ahead += f64::from(*reward);
            *reward = ahead as f32;
        }
        Ok(WeightedReturns { returns, weights })
    }
}

impl AdvantageEstimator for OptimalTokenBaseline {
    fn name(&self) -> &str {
        NAME
    }

    fn needs(&self) -> &[Column] {
        &[
            Column::TokenRewards,
            Column::OldLogProbs,
            Column::SumPiSquared,
        ]
    }

    fn requirements(&self) -> Requirements {
        self.0.singleton_groups.requirements()
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let (mut advantages, mut returns) = (Vec::new(), Vec::new());
        for group in batch.groups().iter().map(Group::trajectories) {
            let answers = group.iter().map(|t| self.answer(t));
            let answers = answers.collect::<Result<Vec<_>>>()?;
            let rows = self.group(&answers);
            for ((t, answer), row) in group.iter().zip(&answers).zip(rows) {
                advantages.push(spread(t, &row));
                returns.push(spread(t, &answer.returns));
            }
        }
        Ok(Advantages {
            advantages,
            returns: Some(returns),
        })
    }
}
