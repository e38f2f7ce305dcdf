//! An algorithm put together from parts.

use super::{
    AdvantageEstimator, Algorithm, BatchHook, DynamicSampling, GroupFilter, KlInReward,
    OnlineRewardModel, PolicyLoss, PolicyTerms, Requirements, ValueLoss,
};
use crate::math::LossAggregation;
use crate::types::Column;

/// An [`Algorithm`] made of an estimator, a loss and whatever else it uses.
/// What it needs of a run follows from its parts.
///
/// # Example
/// ```
/// # use verl_core::algorithm::{Advantages, LossInput, LossOutput};
/// # use verl_core::types::{Batch, Column};
/// # #[derive(Debug)] struct Mean;
/// # impl AdvantageEstimator for Mean {
/// #     fn name(&self) -> &str { "mean" }
/// #     fn needs(&self) -> &[Column] { &[Column::Values] }
/// #     fn estimate(&self, _: &Batch) -> verl_core::Result<Advantages> { Ok(Advantages::default()) }
/// # }
/// # #[derive(Debug)] struct Plain;
/// # impl PolicyLoss for Plain {
/// #     fn name(&self) -> &str { "plain" }
/// #     fn needs(&self) -> &[Column] { &[Column::RefLogProbs] }
/// #     fn per_token(&self, i: &LossInput<'_>) -> verl_core::Result<LossOutput> {
/// #         Ok(LossOutput { loss_n: i.log_probs_n.clone(), metrics_n: vec![] })
/// #     }
/// # }
/// use verl_core::algorithm::{AdvantageEstimator, Algorithm, Composed, PolicyLoss, PolicyTerms};
///
/// let mine = Composed::new("mine", Box::new(Mean), Box::new(Plain))
///     .terms(PolicyTerms { entropy_coeff: 0.01, ..Default::default() });
/// // `Mean` reads values and `Plain` reference log-probs:
/// assert!(mine.requirements().critic && mine.requirements().reference);
/// ```
#[derive(Debug)]
pub struct Composed {
    name: String,
    estimator: Box<dyn AdvantageEstimator>,
    loss: Box<dyn PolicyLoss>,
    terms: PolicyTerms,
    value_loss: Option<(Box<dyn ValueLoss>, LossAggregation)>,
    kl_in_reward: Option<KlInReward>,
    filter: Option<(Box<dyn GroupFilter>, usize)>,
    hooks: Vec<Box<dyn BatchHook>>,
    reward_model: Option<OnlineRewardModel>,
    critic_warmup: u64,
    extra: Requirements,
}

impl Composed {
    /// An algorithm of an estimator and a loss, without KL, entropy bonus or
    /// critic.
    pub fn new(
        name: impl Into<String>,
        estimator: Box<dyn AdvantageEstimator>,
        loss: Box<dyn PolicyLoss>,
    ) -> Self {
        Composed {
            name: name.into(),
            estimator,
            loss,
            terms: PolicyTerms::default(),
            value_loss: None,
            kl_in_reward: None,
            filter: None,
            hooks: Vec::new(),
            reward_model: None,
            critic_warmup: 0,
            extra: Requirements::default(),
        }
    }

    /// Sets aggregation, entropy bonus and KL loss.
    pub fn terms(mut self, terms: PolicyTerms) -> Self {
        self.terms = terms;
        self
    }

    /// Gives the critic its loss.
    pub fn value_loss(mut self, loss: Box<dyn ValueLoss>, aggregation: LossAggregation) -> Self {
        self.value_loss = Some((loss, aggregation));
        self
    }

    /// Subtracts KL from the rewards.
    pub fn kl_in_reward(mut self, kl: Option<KlInReward>) -> Self {
        self.kl_in_reward = kl;
        self
    }

    /// Samples until enough groups pass a filter; see [`DynamicSampling`].
    pub fn dynamic_sampling(
        mut self,
        filter: Box<dyn GroupFilter>,
        max_gen_batches: usize,
    ) -> Self {
        self.filter = Some((filter, max_gen_batches));
        self
    }

    /// Adds a change to the batch; hooks run in the order they are added.
    pub fn hook(mut self, hook: Box<dyn BatchHook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Trains a reward model beside the policy.
    pub fn reward_model(mut self, model: OnlineRewardModel) -> Self {
        self.reward_model = Some(model);
        self
    }

    /// Trains the critic alone for the first steps.
    pub fn critic_warmup(mut self, steps: u64) -> Self {
        self.critic_warmup = steps;
        self
    }

    /// Adds to what the parts need.
    pub fn requires(mut self, requirements: Requirements) -> Self {
        self.extra = self.extra.and(requirements);
        self
    }

    fn reads(&self, column: Column) -> bool {
        let value = self.value_loss.iter().flat_map(|(loss, _)| loss.needs());
        let mut all = self
            .estimator
            .needs()
            .iter()
            .chain(self.loss.needs())
            .chain(value);
        all.any(|c| *c == column)
    }
}

impl Algorithm for Composed {
    fn name(&self) -> &str {
        &self.name
    }

    fn requirements(&self) -> Requirements {
        let kl = self.terms.kl_loss.is_some() || self.kl_in_reward.is_some();
        let reference = kl || self.reward_model.is_some() || self.reads(Column::RefLogProbs);
        let critic =
            self.value_loss.is_some() || self.reads(Column::Values) || self.reads(Column::Returns);
        let columns = Requirements::default()
            .reference(reference)
            .critic(critic)
            .sum_pi_squared(self.reads(Column::SumPiSquared));
        (self.extra)
            .and(self.estimator.requirements())
            .and(self.loss.requirements())
            .and(columns)
    }

    fn estimator(&self) -> &dyn AdvantageEstimator {
        &*self.estimator
    }

    fn policy_loss(&self) -> &dyn PolicyLoss {
        &*self.loss
    }

    fn policy_terms(&self) -> PolicyTerms {
        self.terms
    }

    fn value_loss(&self) -> Option<(&dyn ValueLoss, LossAggregation)> {
        self.value_loss
            .as_ref()
            .map(|(loss, mode)| (&**loss, *mode))
    }

    fn kl_in_reward(&self) -> Option<KlInReward> {
        self.kl_in_reward
    }

    fn dynamic_sampling(&self) -> Option<DynamicSampling<'_>> {
        self.filter.as_ref().map(|(filter, max)| DynamicSampling {
            filter: &**filter,
            max_gen_batches: *max,
        })
    }

    fn hooks(&self) -> &[Box<dyn BatchHook>] {
        &self.hooks
    }

    fn reward_model(&self) -> Option<&OnlineRewardModel> {
        self.reward_model.as_ref()
    }

    fn critic_warmup(&self) -> u64 {
        self.critic_warmup
    }
}
