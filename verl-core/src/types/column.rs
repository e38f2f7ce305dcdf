//! The per-token quantities a trajectory may carry.

/// A per-token quantity aligned with the response of a trajectory: one value
/// for each response token, masked ones included.
///
/// A column exists only once it has been computed. Plugins list the columns
/// they read, and the trainer checks that list before the first rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Column {
    /// Log-probs under the distribution the tokens were sampled from.
    RolloutLogProbs,
    /// Log-probs under the policy before this step's first update.
    OldLogProbs,
    /// Log-probs under the reference policy.
    RefLogProbs,
    /// Sum over the vocabulary of the squared probabilities under the policy
    /// before this step's first update.
    SumPiSquared,
    /// The critic's values before this step's first update.
    Values,
    /// Rewards: the score on the last policy token, plus any KL penalty.
    TokenRewards,
    /// Process rewards: how much more likely than its reference a trained
    /// reward model finds each token.
    ImplicitRewards,
    /// Advantages.
    Advantages,
    /// Returns, the critic's targets.
    Returns,
    /// Importance weights of the rollout correction.
    ImportanceWeights,
}

impl Column {
    pub(crate) const COUNT: usize = 10;

    /// The name used in messages.
    pub fn name(self) -> &'static str {
        match self {
            Column::RolloutLogProbs => "rollout_log_probs",
            Column::OldLogProbs => "old_log_probs",
            Column::RefLogProbs => "ref_log_probs",
            Column::SumPiSquared => "sum_pi_squared",
            Column::Values => "values",
            Column::TokenRewards => "token_rewards",
            Column::ImplicitRewards => "implicit_rewards",
            Column::Advantages => "advantages",
            Column::Returns => "returns",
            Column::ImportanceWeights => "importance_weights",
        }
    }

    /// What has to happen for the column to exist.
    pub fn remedy(self) -> &'static str {
        match self {
            Column::RolloutLogProbs => "sample with an engine that returns log-probs",
            Column::OldLogProbs => "score the batch with the policy first",
            Column::RefLogProbs => "give the run a reference policy",
            Column::SumPiSquared => "let the policy return it when it scores the batch",
            Column::Values => "give the run a critic",
            Column::TokenRewards => "score the batch with a reward function first",
            Column::ImplicitRewards => "score the batch with an implicit reward model first",
            Column::Advantages => "run an advantage estimator first",
            Column::Returns => "use an advantage estimator that computes returns (GAE)",
            Column::ImportanceWeights => "set algorithm.rollout_correction",
        }
    }
}
