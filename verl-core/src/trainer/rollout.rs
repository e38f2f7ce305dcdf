//! What is sampled, and the groups that come of it.

use super::Prompt;
use super::answers::Answers;
use super::scored::scored;
use crate::Result;
use crate::rollout::{Rollout, RolloutRequest, SamplingParams, sample_seed};
use crate::types::{Group, GroupId, Trajectory, TrajectoryParts};
use std::sync::Arc;

/// Distinguishes the random numbers of evaluation from those of training.
const EVAL_STREAM: u64 = 1 << 63;

/// What is sampled: prompts, answers to each, and how.
pub(super) struct Plan<'a> {
    pub(super) prompts: Vec<&'a Prompt>,
    pub(super) samples: usize,
    pub(super) params: Arc<SamplingParams>,
    /// Step of the random numbers.
    pub(super) stream: u64,
    /// Id of the first prompt's group.
    first_group: u64,
}

impl<'a> Plan<'a> {
    pub(super) fn training(
        prompts: Vec<&'a Prompt>,
        samples: usize,
        params: &SamplingParams,
        step: u64,
    ) -> Self {
        Plan {
            prompts,
            samples,
            params: Arc::new(params.clone()),
            stream: step,
            first_group: 0,
        }
    }

    /// Counts groups from `first` on.
    pub(super) fn starting_at(mut self, first: u64) -> Self {
        self.first_group = first;
        self
    }

    /// One greedy answer to each prompt.
    pub(super) fn greedy(&self) -> Plan<'a> {
        let params = SamplingParams {
            temperature: 0.0,
            ..(*self.params).clone()
        };
        Plan {
            prompts: self.prompts.clone(),
            samples: 1,
            params: Arc::new(params),
            ..*self
        }
    }

    fn group_id(&self, prompt: usize) -> GroupId {
        GroupId(self.first_group + prompt as u64)
    }

    /// Place of an answer in the plan, prompt after prompt; `None` for one that
    /// nobody asked for.
    pub(super) fn position(&self, rollout: &Rollout) -> Option<usize> {
        let prompt = usize::try_from(rollout.group.0.checked_sub(self.first_group)?).ok()?;
        let asked = prompt < self.prompts.len() && rollout.sample < self.samples;
        asked.then(|| prompt * self.samples + rollout.sample)
    }

    /// Evaluation draws the same random numbers at every step, so that two
    /// evaluations differ by the weights alone.
    pub(super) fn evaluation(
        prompts: Vec<&'a Prompt>,
        samples: usize,
        params: &SamplingParams,
    ) -> Self {
        Plan {
            prompts,
            samples,
            params: Arc::new(params.clone()),
            stream: EVAL_STREAM,
            first_group: 0,
        }
    }

    pub(super) fn requests(&self, seed: u64) -> Vec<RolloutRequest> {
        let request = |(g, prompt): (usize, &&Prompt)| {
            let (ids, group) = (prompt.ids.clone(), self.group_id(g));
            (0..self.samples).map(move |sample| RolloutRequest {
                group,
                sample,
                prompt: ids.clone(),
                seed: sample_seed(seed, self.stream, group.0, sample as u64),
                params: self.params.clone(),
            })
        };
        self.prompts.iter().enumerate().flat_map(request).collect()
    }
}

/// Groups of trajectories, from scored answers; an answer that could
/// not be scored gets `failure_score`.
pub(super) fn groups(plan: &Plan<'_>, answers: &Answers, failure_score: f32) -> Result<Vec<Group>> {
    let mut scores = scored(&answers.outcomes, failure_score).into_iter();
    let make = |(g, prompt): (usize, &&Prompt)| {
        let member = |sample: usize| {
            let mut t = trajectory(prompt, &answers.rollouts[g * plan.samples + sample])?;
            if let Some(scored) = scores.next() {
                t.set_score(scored.reward)?;
                t.set_parts(scored.parts)?;
            }
            Ok(t)
        };
        let members = (0..plan.samples).map(member).collect::<Result<_>>()?;
        Group::new(plan.group_id(g), members)
    };
    plan.prompts.iter().enumerate().map(make).collect()
}

fn trajectory(prompt: &Prompt, rollout: &Rollout) -> Result<Trajectory> {
    let mut trajectory = Trajectory::new(TrajectoryParts {
        group: rollout.group,
        sample: rollout.sample,
        prompt: prompt.ids.clone(),
        response: rollout.tokens.clone(),
        response_mask: vec![true; rollout.tokens.len()],
        finish: rollout.finish,
        weight_version: rollout.weight_version,
    })?;
    trajectory.set(
        crate::types::Column::RolloutLogProbs,
        rollout.log_probs.clone(),
    )?;
    Ok(trajectory)
}
