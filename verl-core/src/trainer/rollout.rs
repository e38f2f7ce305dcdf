//! Sampling and scoring.

use super::scored::scored;
use super::{Prompt, Trainer};
use crate::reward::{Outcome, OwnedInput, ScoringStats};
use crate::rollout::{Rollout, RolloutEngine, RolloutRequest, SamplingParams, sample_seed};
use crate::text::Tokenizer;
use crate::types::{FinishReason, Group, GroupId, Trajectory, TrajectoryParts};
use crate::{Error, Result};
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

    fn requests(&self, seed: u64) -> Vec<RolloutRequest> {
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

/// Answers with their texts, prompt after prompt.
pub(super) struct Answers {
    pub(super) rollouts: Vec<Rollout>,
    pub(super) texts: Vec<String>,
}

impl Answers {
    /// Tokens sampled.
    pub(super) fn tokens(&self) -> u64 {
        self.rollouts.iter().map(|r| r.tokens.len() as u64).sum()
    }
}

/// Samples the plan's answers and decodes them.
pub(super) fn sample(
    engine: &mut dyn RolloutEngine,
    tokenizer: &dyn Tokenizer,
    plan: &Plan<'_>,
    seed: u64,
) -> Result<Answers> {
    let total = plan.prompts.len() * plan.samples;
    let mut slots: Vec<Option<Rollout>> = vec![None; total];
    engine.generate(plan.requests(seed), &mut |rollout| {
        let prompt = rollout.group.0.checked_sub(plan.first_group);
        let at = prompt.map_or(usize::MAX, |p| p as usize * plan.samples + rollout.sample);
        match slots.get_mut(at) {
            Some(slot) if slot.is_none() => *slot = Some(rollout),
            _ => {
                return Err(Error::invalid(format!(
                    "the engine returned an answer nobody asked for: group {}, sample {}",
                    rollout.group.0, rollout.sample
                )));
            }
        }
        Ok(())
    })?;
    let rollouts: Vec<Rollout> = slots.into_iter().flatten().collect();
    if rollouts.len() != total {
        return Err(Error::invalid(format!(
            "the engine returned {} of {total} answers",
            rollouts.len()
        )));
    }
    let texts = rollouts
        .iter()
        .map(|r| tokenizer.decode(&r.tokens, true))
        .collect::<Result<_>>()?;
    Ok(Answers { rollouts, texts })
}

impl Trainer {
    /// Scores answers. Failures get the configured score and are counted;
    /// too many of them end the run.
    pub(super) fn score(&self, plan: &Plan<'_>, answers: &Answers) -> Result<Vec<Outcome>> {
        let input = |(i, (rollout, text)): (usize, (&Rollout, &String))| {
            let prompt = plan.prompts[i / plan.samples];
            let input = OwnedInput::new(prompt.text.clone(), text.clone(), prompt.row.clone())
                .with_tokens(rollout.tokens.len(), rollout.finish == FinishReason::Length);
            match &prompt.answer {
                Some(answer) => input.with_answer(answer.clone()),
                None => input,
            }
        };
        let inputs = answers
            .rollouts
            .iter()
            .zip(&answers.texts)
            .enumerate()
            .map(input)
            .collect();
        let outcomes = self.pool.score_batch(&self.parts.reward, inputs)?;
        ScoringStats::of(&outcomes).check(self.settings.max_failure_fraction, &outcomes)?;
        Ok(outcomes)
    }
}

/// Groups of trajectories, from answers and their scores; an answer that could
/// not be scored gets `failure_score`.
pub(super) fn groups(
    plan: &Plan<'_>,
    answers: &Answers,
    outcomes: &[Outcome],
    failure_score: f32,
) -> Result<Vec<Group>> {
    let mut scores = scored(outcomes, failure_score).into_iter();
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
