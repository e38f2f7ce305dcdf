//! Preference pairs: the best answer to a prompt against the worst.

use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};
use std::collections::BTreeMap;
use verl_core::algorithm::{LossInput, Requirements};
use verl_core::types::{Column, GroupId};
use verl_core::{Error, Result};

/// Pairs among the sequences of a micro-batch that never splits a group.
#[derive(Debug)]
pub(crate) struct Pairs {
    /// Numbers of the best answers, `[p]`.
    chosen: Vec<i64>,
    /// Numbers of the worst, `[p]`.
    rejected: Vec<i64>,
    /// Answers to each pair's prompt.
    sizes: Vec<f32>,
}

impl Pairs {
    /// Pairs by score; of equal scores that of the first sample counts. A group
    /// whose scores are all equal has no pair, and answers without a token are
    /// in none.
    ///
    /// # Errors
    /// [`Error::MissingPartner`] naming a group of one answer,
    /// [`Error::MissingColumn`] for an answer without a score.
    pub(crate) fn find(input: &LossInput<'_>, requester: &'static str) -> Result<Self> {
        let mut groups = BTreeMap::<GroupId, Vec<usize>>::new();
        for (s, t) in input.trajectories.iter().enumerate() {
            groups.entry(t.group()).or_default().push(s);
        }
        let mut pairs = Pairs {
            chosen: Vec::new(),
            rejected: Vec::new(),
            sizes: Vec::new(),
        };
        for (group, mut answers) in groups {
            if answers.len() < 2 {
                let group = group.0;
                return Err(Error::MissingPartner { group, requester });
            }
            answers.retain(|s| !input.segments[*s].is_empty());
            answers.sort_by_key(|s| input.trajectories[*s].sample());
            let score = |s: &usize| {
                input.trajectories[*s].score().ok_or(Error::MissingColumn {
                    column: "score",
                    requester,
                    remedy: Column::TokenRewards.remedy(),
                })
            };
            let scores: Vec<f32> = answers.iter().map(score).collect::<Result<_>>()?;
            let (mut best, mut worst) = (0, 0);
            for (i, score) in scores.iter().enumerate() {
                best = if *score > scores[best] { i } else { best };
                worst = if *score < scores[worst] { i } else { worst };
            }
            if best != worst {
                pairs.chosen.push(answers[best] as i64);
                pairs.rejected.push(answers[worst] as i64);
                pairs.sizes.push(answers.len() as f32);
            }
        }
        Ok(pairs)
    }

    /// Whether no group has a pair.
    pub(crate) fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// The two answers' parts of a quantity per sequence, `[s] -> [p]` each.
    pub(crate) fn split(&self, values_s: Tensor<1>) -> (Tensor<1>, Tensor<1>) {
        let device = values_s.device().inner();
        let chosen = values_s.clone().select(0, index(&self.chosen, &device));
        (chosen, values_s.select(0, index(&self.rejected, &device)))
    }

    /// Gives a loss per pair to the tokens of both answers, `[p] -> [n]`, so
    /// that the mean over all answers of the mean over their tokens is the
    /// mean over groups, each counted by its answers.
    pub(crate) fn spread(&self, input: &LossInput<'_>, losses_p: Tensor<1>) -> Tensor<1> {
        let device = losses_p.device().inner();
        let half = self.sizes.iter().map(|size| 0.5 * size).collect::<Vec<_>>();
        let half = Tensor::<1>::from_data(TensorData::new(half, [self.sizes.len()]), &device);
        self.both(input, losses_p * half)
    }

    /// Gives a quantity per pair to the tokens of both answers, `[p] -> [n]`;
    /// other answers have 0.
    pub(crate) fn both(&self, input: &LossInput<'_>, values_p: Tensor<1>) -> Tensor<1> {
        let device = values_p.device().inner();
        let mut values_s = Tensor::<1>::zeros([input.trajectories.len()], &values_p.device());
        for answers in [&self.chosen, &self.rejected] {
            let at = index(answers, &device);
            values_s = values_s.select_assign(0, at, values_p.clone(), IndexingUpdateOp::Add);
        }
        input.spread_n(values_s)
    }
}

/// What a loss that compares the answers to a prompt needs.
pub(crate) fn requirements() -> Requirements {
    Requirements::default().min_group_size(2).whole_groups(true)
}

/// A loss of 0 at every token, whatever the log-probs, that gradients can be
/// taken of.
pub(crate) fn nothing(input: &LossInput<'_>) -> Tensor<1> {
    let all = input.log_probs_n.clone().inner().equal_scalar(0.0);
    let all = all.clone().bool_or(all.bool_not());
    input.log_probs_n.clone().mask_fill(all, 0.0)
}

fn index(numbers: &[i64], device: &burn::tensor::Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(numbers.to_vec(), [numbers.len()]), device)
}
