//! The answers of one step: sampled, scored, and filtered where the algorithm
//! asks for it.

use super::answers::Answers;
use super::rollout::{Plan, groups};
use super::step::Clock;
use super::{Prompt, Trainer};
use crate::Result;
use crate::reward::{Outcome, ScoringStats};
use crate::tracking::{Metrics, Split};
use crate::types::{Batch, Group};

/// One pass over some prompts: scored answers, and the groups they form.
struct Round {
    answers: Answers,
    groups: Vec<Group>,
}

/// What a step trains on.
pub(super) struct Collected {
    pub(super) batch: Batch,
    pub(super) tokens_generated: u64,
    pub(super) unscored: u64,
}

impl Trainer {
    /// Samples and scores until the step's batch is full.
    pub(super) fn collect(
        &mut self,
        metrics: &mut Metrics,
        clock: &mut Clock,
    ) -> Result<Collected> {
        let wanted = self.settings.prompts_per_step;
        let mut kept: Vec<Group> = Vec::new();
        let mut outcomes: Vec<Outcome> = Vec::new();
        let (mut rounds, mut seen, mut tokens_generated) = (0, 0, 0);
        loop {
            let round = self.round(seen as u64, rounds == 0, metrics, clock)?;
            rounds += 1;
            seen += round.groups.len();
            tokens_generated += round.answers.tokens();
            outcomes.extend(round.answers.outcomes);
            let Some(dynamic) = self.parts.algorithm.dynamic_sampling() else {
                kept = round.groups;
                break;
            };
            let mut rest = Vec::new();
            for group in round.groups {
                match dynamic.filter.keeps(&group)? {
                    true => kept.push(group),
                    false => rest.push(group),
                }
            }
            let capped = dynamic.max_gen_batches > 0 && rounds >= dynamic.max_gen_batches;
            if kept.len() >= wanted || capped {
                metrics.set("train/num_gen_batches", rounds as f64);
                metrics.set("train/kept_groups", kept.len() as f64 / seen as f64);
                if kept.len() < wanted {
                    tracing::warn!(
                        kept = kept.len(),
                        wanted,
                        rounds,
                        "max_num_gen_batches reached; the step trains on what there is"
                    );
                }
                // Nothing passed: these at least keep the KL and entropy terms going.
                if kept.is_empty() {
                    kept = rest;
                }
                break;
            }
        }
        kept.truncate(wanted);
        let stats = ScoringStats::of(&outcomes);
        metrics.extend(stats.metrics());
        Ok(Collected {
            batch: Batch::new(kept),
            tokens_generated,
            unscored: stats.unscored() as u64,
        })
    }

    fn round(
        &mut self,
        first_group: u64,
        log: bool,
        metrics: &mut Metrics,
        clock: &mut Clock,
    ) -> Result<Round> {
        let picks = self.loader.next_batch();
        let prompts: Vec<Prompt> = picks
            .iter()
            .map(|i| self.parts.prompts[*i].clone())
            .collect();
        let plan = Plan::training(
            prompts.iter().collect(),
            self.settings.samples_per_prompt,
            &self.settings.sampling,
            self.step + 1,
        )
        .starting_at(first_group);
        let answers = self.answer(&plan)?;
        clock.lap("gen", metrics);
        Clock::shift("gen", "reward", answers.scoring, metrics);
        let mut groups = groups(&plan, &answers, self.settings.failure_score)?;
        if self.parts.algorithm.requirements().greedy_baseline {
            self.baselines(&plan, &mut groups)?;
            clock.lap("gen_max", metrics);
        }
        if log {
            self.log_completions(Split::Train, &plan, &answers)?;
        }
        Ok(Round { answers, groups })
    }

    /// Gives each group the reward of one greedy answer to its prompt.
    fn baselines(&mut self, plan: &Plan<'_>, groups: &mut [Group]) -> Result<()> {
        let greedy = plan.greedy();
        let answers = self.answer(&greedy)?;
        for (group, outcome) in groups.iter_mut().zip(&answers.outcomes) {
            group.set_baseline(outcome.value_or(self.settings.failure_score))?;
        }
        Ok(())
    }
}
