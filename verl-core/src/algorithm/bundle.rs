//! An algorithm: an estimator, a loss, and what they need of a run.

use super::{
    AdvantageEstimator, BatchHook, DynamicSampling, KlLoss, OnlineRewardModel, PolicyLoss,
    ValueLoss,
};
use crate::math::{KlControl, KlEstimator, LossAggregation};
use std::fmt;

/// What a run must have for an algorithm to work. Checked at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requirements {
    /// A critic that is trained beside the policy.
    pub critic: bool,
    /// A frozen reference policy.
    pub reference: bool,
    /// Fewest answers per prompt.
    pub min_group_size: usize,
    /// One greedy answer per prompt, whose reward is the group's baseline.
    pub greedy_baseline: bool,
    /// Micro-batches that keep the answers to one prompt together.
    pub whole_groups: bool,
    /// The sum of squared probabilities at each token.
    pub sum_pi_squared: bool,
    /// Old log-probs are those of the sampler; the policy does not score the
    /// batch again.
    pub rollout_log_probs_as_old: bool,
}

impl Default for Requirements {
    fn default() -> Self {
        Requirements {
            critic: false,
            reference: false,
            min_group_size: 1,
            greedy_baseline: false,
            whole_groups: false,
            sum_pi_squared: false,
            rollout_log_probs_as_old: false,
        }
    }
}

impl Requirements {
    /// Sets [`Requirements::critic`].
    pub fn critic(mut self, needed: bool) -> Self {
        self.critic = needed;
        self
    }

    /// Sets [`Requirements::reference`].
    pub fn reference(mut self, needed: bool) -> Self {
        self.reference = needed;
        self
    }

    /// Sets [`Requirements::min_group_size`].
    pub fn min_group_size(mut self, size: usize) -> Self {
        self.min_group_size = size;
        self
    }

    /// Sets [`Requirements::greedy_baseline`].
    pub fn greedy_baseline(mut self, needed: bool) -> Self {
        self.greedy_baseline = needed;
        self
    }

    /// Sets [`Requirements::whole_groups`].
    pub fn whole_groups(mut self, needed: bool) -> Self {
        self.whole_groups = needed;
        self
    }

    /// Sets [`Requirements::sum_pi_squared`].
    pub fn sum_pi_squared(mut self, needed: bool) -> Self {
        self.sum_pi_squared = needed;
        self
    }

    /// Sets [`Requirements::rollout_log_probs_as_old`].
    pub fn rollout_log_probs_as_old(mut self, wanted: bool) -> Self {
        self.rollout_log_probs_as_old = wanted;
        self
    }

    /// What both need.
    pub fn and(self, other: Requirements) -> Self {
        Requirements {
            critic: self.critic || other.critic,
            reference: self.reference || other.reference,
            min_group_size: self.min_group_size.max(other.min_group_size),
            greedy_baseline: self.greedy_baseline || other.greedy_baseline,
            whole_groups: self.whole_groups || other.whole_groups,
            sum_pi_squared: self.sum_pi_squared || other.sum_pi_squared,
            rollout_log_probs_as_old: self.rollout_log_probs_as_old
                || other.rollout_log_probs_as_old,
        }
    }
}

/// The terms of the policy objective besides the loss itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicyTerms {
    /// How per-token losses become one number.
    pub aggregation: LossAggregation,
    /// Weight of the entropy bonus.
    pub entropy_coeff: f32,
    /// KL in the loss.
    pub kl_loss: Option<KlLoss>,
}

impl Default for PolicyTerms {
    /// The token mean of the loss alone.
    fn default() -> Self {
        PolicyTerms {
            aggregation: LossAggregation::TokenMean,
            entropy_coeff: 0.0,
            kl_loss: None,
        }
    }
}

/// KL subtracted from the token rewards, before advantages are estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KlInReward {
    /// Estimator of the per-token KL. Its gradient is never taken here.
    pub estimator: KlEstimator,
    /// Where the coefficient comes from.
    pub control: KlControl,
}

/// A reinforcement-learning algorithm: it names its parts and says what it
/// needs. The trainer asks; it never compares a name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an algorithm",
    note = "implement `Algorithm`; verl-algos/src/grpo.rs is a short example"
)]
pub trait Algorithm: fmt::Debug + Send + Sync {
    /// The registry key.
    fn name(&self) -> &str;

    /// What the run must have.
    fn requirements(&self) -> Requirements;

    /// Turns rewards into advantages.
    fn estimator(&self) -> &dyn AdvantageEstimator;

    /// The per-token policy loss.
    fn policy_loss(&self) -> &dyn PolicyLoss;

    /// The other terms of the policy objective.
    fn policy_terms(&self) -> PolicyTerms;

    /// The critic's loss and its aggregation, when there is a critic.
    fn value_loss(&self) -> Option<(&dyn ValueLoss, LossAggregation)>;

    /// KL in the reward, if any.
    fn kl_in_reward(&self) -> Option<KlInReward>;

    /// Which groups are trained on; `None` trains on all.
    fn dynamic_sampling(&self) -> Option<DynamicSampling<'_>> {
        None
    }

    /// Changes to the batch, in order.
    fn hooks(&self) -> &[Box<dyn BatchHook>] {
        &[]
    }

    /// A reward model that is trained beside the policy.
    fn reward_model(&self) -> Option<&OnlineRewardModel> {
        None
    }

    /// First steps in which only the critic is trained, unless the run says
    /// otherwise.
    fn critic_warmup(&self) -> u64 {
        0
    }
}

const _: fn(&dyn Algorithm) = |_| {};
