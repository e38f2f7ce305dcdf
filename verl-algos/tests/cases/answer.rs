//! Answers given by a few numbers.

use serde_json::Value;
use verl_algos::Catalogue;
use verl_core::algorithm::{Advantages, Algorithm};
use verl_core::registry::Settings;
use verl_core::types::{Batch, Column, FinishReason, Group, GroupId, Trajectory, TrajectoryParts};

/// An answer whose tokens are the policy's where the mask says so.
pub(crate) fn answer(group: u64, sample: usize, mask: &[bool]) -> Trajectory {
    Trajectory::new(TrajectoryParts {
        group: GroupId(group),
        sample,
        prompt: vec![1].into(),
        response: vec![7; mask.len()],
        response_mask: mask.to_vec(),
        finish: FinishReason::Stop,
        weight_version: 0,
    })
    .unwrap()
}

/// Answers to one prompt.
pub(crate) fn group(id: u64, answers: Vec<Trajectory>) -> Group {
    Group::new(GroupId(id), answers).unwrap()
}

/// Groups of answers of one token, with the given scores.
pub(crate) fn scored(groups: &[&[f32]]) -> Batch {
    let member = |id: usize, (sample, score): (usize, &f32)| {
        let mut t = answer(id as u64, sample, &[true]);
        t.set_score(*score).unwrap();
        t
    };
    let make = |(id, scores): (usize, &&[f32])| {
        let answers = scores.iter().enumerate().map(|s| member(id, s)).collect();
        group(id as u64, answers)
    };
    Batch::new(groups.iter().enumerate().map(make).collect())
}

/// An algorithm of the catalogue.
pub(crate) fn algorithm(name: &str, options: Value) -> Box<dyn Algorithm> {
    let settings = Settings(options.as_object().unwrap().clone());
    Catalogue::builtin().build(name, &settings).unwrap()
}

/// What an algorithm's estimator makes of a batch.
pub(crate) fn estimate(name: &str, options: Value, batch: &Batch) -> Advantages {
    let algorithm = algorithm(name, options);
    algorithm.estimator().estimate(batch).unwrap()
}

/// The advantages alone, one after the other.
pub(crate) fn advantages(name: &str, options: Value, batch: &Batch) -> Vec<f32> {
    estimate(name, options, batch).advantages.concat()
}

/// Sets columns.
pub(crate) fn with(mut t: Trajectory, columns: &[(Column, &[f32])]) -> Trajectory {
    for (column, values) in columns {
        t.set(*column, values.to_vec()).unwrap();
    }
    t
}

/// Equal up to rounding.
pub(crate) fn close(got: &[f32], want: &[f32]) -> bool {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4;
    got.len() == want.len() && got.iter().zip(want).all(near)
}
