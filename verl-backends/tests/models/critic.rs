//! The critic against PyTorch.

use crate::golden::{assert_close, float_rows, loaded_models, rows};
use crate::learn::{check_gradients, number};
use std::sync::Arc;
use verl_backends::engine::{EngineOptions, ValueCritic};
use verl_backends::optim::{AdamW, AdamWConfig};
use verl_core::Result;
use verl_core::algorithm::{LossOutput, ValueInput, ValueLoss, ValueObjective};
use verl_core::math::{Denominators, LossAggregation};
use verl_core::policy::Critic;
use verl_core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};

#[derive(Debug)]
struct ClippedValue(f32);

impl ValueLoss for ClippedValue {
    fn needs(&self) -> &[Column] {
        &[Column::Values, Column::Returns]
    }

    fn per_token(&self, input: &ValueInput<'_>) -> Result<LossOutput> {
        let (old, returns) = (
            input.column_n(Column::Values, "test")?,
            input.column_n(Column::Returns, "test")?,
        );
        let v = input.values_n.clone();
        let clipped = old.clone() + (v.clone() - old).clamp(-self.0, self.0);
        let loss_n = (v - returns.clone())
            .square()
            .max_pair((clipped - returns).square())
            .mul_scalar(0.5);
        Ok(LossOutput {
            loss_n,
            metrics_n: vec![],
        })
    }
}

#[test]
fn gradients_of_the_value_loss_are_pytorchs() {
    let mut checked = 0;
    for (name, model, golden) in loaded_models() {
        for case in golden.cases("clipped value loss") {
            let inputs = &case["inputs"];
            let (ids, mask) = (rows(&inputs["input_ids"]), rows(&inputs["attention_mask"]));
            let (returns, old) = (
                float_rows(&golden, &inputs["returns"]),
                float_rows(&golden, &inputs["old_values"]),
            );
            // The value of token t is the output at its own position: as the
            // state before a response token, the prompt ends with t.
            let batch: Vec<Trajectory> = (0..ids.len())
                .map(|i| value_row(&ids[i], &mask[i], &returns[i], &old[i]))
                .collect();
            let refs: Vec<&Trajectory> = batch.iter().collect();
            let adam = Box::new(AdamW::new(AdamWConfig::default()));
            let mut critic =
                ValueCritic::new(model.clone(), adam, EngineOptions::default()).unwrap();
            let objective = ValueObjective {
                loss: &ClippedValue(number(&case["config"]["cliprange_value"])),
                aggregation: LossAggregation::TokenMean,
                denominators: Denominators::count(batch.iter().map(Trajectory::policy_tokens)),
            };
            let metrics = critic.forward_backward(&refs, &objective).unwrap();
            assert_close(
                &name,
                &[metrics[0].1 as f32],
                &[number(&case["outputs"]["loss"])],
                1e-4,
            );
            check_gradients(
                &name,
                &golden,
                critic.gradients(),
                &case["outputs"]["grads"],
            );
            checked += 1;
        }
    }
    assert!(checked > 0);
}

/// A row whose every token has a value: the first token is the prompt, and one
/// token is added at the end, which predicts nothing.
fn value_row(ids: &[i64], mask: &[i64], returns: &[f32], old: &[f32]) -> Trajectory {
    let live: Vec<usize> = (0..ids.len()).filter(|&t| mask[t] == 1).collect();
    let mut response: Vec<u32> = live[1..].iter().map(|&t| ids[t] as u32).collect();
    response.push(0);
    let mut t = Trajectory::new(TrajectoryParts {
        group: GroupId(0),
        sample: 0,
        prompt: Arc::from([ids[live[0]] as u32]),
        response_mask: vec![true; response.len()],
        response,
        finish: FinishReason::Stop,
        weight_version: 0,
    })
    .unwrap();
    t.set(Column::Returns, live.iter().map(|&i| returns[i]).collect())
        .unwrap();
    t.set(Column::Values, live.iter().map(|&i| old[i]).collect())
        .unwrap();
    t
}
