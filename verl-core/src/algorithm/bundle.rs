//! An algorithm: an estimator, a loss, and what they need of a run.

use super::{AdvantageEstimator, KlLoss, PolicyLoss, ValueLoss};
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
}

impl Default for Requirements {
    fn default() -> Self {
        Requirements {
            critic: false,
            reference: false,
            min_group_size: 1,
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
}

const _: fn(&dyn Algorithm) = |_| {};
