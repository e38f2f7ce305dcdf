//! Sampling, with every answer scored as soon as it is finished.

use super::rollout::Plan;
use super::{Prompt, Trainer};
use crate::reward::{Outcome, OwnedInput, ScoringStats};
use crate::rollout::Rollout;
use crate::text::Tokenizer;
use crate::types::FinishReason;
use crate::{Error, Result};
use std::time::{Duration, Instant};

/// Answers with their texts and what the scorer made of them, prompt after
/// prompt.
pub(super) struct Answers {
    pub(super) rollouts: Vec<Rollout>,
    pub(super) texts: Vec<String>,
    pub(super) outcomes: Vec<Outcome>,
    /// How long scoring went on after the last answer was finished.
    pub(super) scoring: Duration,
}

impl Answers {
    /// Tokens sampled.
    pub(super) fn tokens(&self) -> u64 {
        self.rollouts.iter().map(|r| r.tokens.len() as u64).sum()
    }
}

impl Trainer {
    /// Answers a plan with the current weights, and scores the answers while
    /// others are still being sampled. Those that cannot be scored are counted;
    /// too many of them end the run.
    pub(super) fn answer(&mut self, plan: &Plan<'_>) -> Result<Answers> {
        let parts = &mut self.parts;
        parts.engine.sync_weights(&parts.policy.weights())?;
        let requests = plan.requests(self.settings.seed);
        let (engine, tokenizer) = (&mut parts.engine, &*parts.tokenizer);
        let ((finished, last), outcomes) = self.pool.score_while(&parts.reward, |score| {
            let mut finished = Finished::new(plan);
            engine.generate(requests, &mut |rollout| {
                score(finished.add(rollout, tokenizer)?);
                Ok(())
            })?;
            Ok((finished, Instant::now()))
        })?;
        let answers = finished.with(outcomes, last.elapsed())?;
        ScoringStats::of(&answers.outcomes)
            .check(self.settings.max_failure_fraction, &answers.outcomes)?;
        Ok(answers)
    }
}

/// Answers in the order in which they were finished.
struct Finished<'a> {
    plan: &'a Plan<'a>,
    answers: Vec<(usize, Rollout, String)>,
    taken: Vec<bool>,
}

impl<'a> Finished<'a> {
    fn new(plan: &'a Plan<'a>) -> Self {
        Finished {
            plan,
            answers: Vec::new(),
            taken: vec![false; plan.prompts.len() * plan.samples],
        }
    }

    /// Keeps an answer and returns what its scorer sees.
    fn add(&mut self, rollout: Rollout, tokenizer: &dyn Tokenizer) -> Result<OwnedInput> {
        let unasked = || {
            Error::invalid(format!(
                "the engine returned an answer nobody asked for: group {}, sample {}",
                rollout.group.0, rollout.sample
            ))
        };
        let at = self.plan.position(&rollout).ok_or_else(unasked)?;
        if std::mem::replace(&mut self.taken[at], true) {
            return Err(unasked());
        }
        let text = tokenizer.decode(&rollout.tokens, true)?;
        let input = score_input(self.plan.prompts[at / self.plan.samples], &rollout, &text);
        self.answers.push((at, rollout, text));
        Ok(input)
    }

    /// The answers in the order of the plan, with their outcomes, which come in
    /// the order of finishing.
    fn with(self, outcomes: Vec<Outcome>, scoring: Duration) -> Result<Answers> {
        let (got, wanted) = (self.answers.len(), self.taken.len());
        if got != wanted {
            return Err(Error::invalid(format!(
                "the engine returned {got} of {wanted} answers"
            )));
        }
        let mut all: Vec<_> = self.answers.into_iter().zip(outcomes).collect();
        all.sort_by_key(|((at, ..), _)| *at);
        let mut answers = Answers {
            rollouts: Vec::with_capacity(got),
            texts: Vec::with_capacity(got),
            outcomes: Vec::with_capacity(got),
            scoring,
        };
        for ((_, rollout, text), outcome) in all {
            answers.rollouts.push(rollout);
            answers.texts.push(text);
            answers.outcomes.push(outcome);
        }
        Ok(answers)
    }
}

fn score_input(prompt: &Prompt, rollout: &Rollout, text: &str) -> OwnedInput {
    let input = OwnedInput::new(prompt.text.clone(), text, prompt.row.clone())
        .with_tokens(rollout.tokens.len(), rollout.finish == FinishReason::Length);
    match &prompt.answer {
        Some(answer) => input.with_answer(answer.clone()),
        None => input,
    }
}
