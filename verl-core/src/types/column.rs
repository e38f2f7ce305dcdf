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
    /// The critic's values before this step's first update.
    Values,
    /// Rewards: the score on the last policy token, plus any KL penalty.
    TokenRewards,
    /// Advantages.
    Advantages,
    /// Returns, the critic's targets.
    Returns,
    /// Sum of the squared probabilities of the vocabulary at each token.
    SumPiSquared,
    /// Rewards of an implicit process reward model.
    ImplicitRewards,
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
            Column::Values => "values",
            Column::TokenRewards => "token_rewards",
            Column::Advantages => "advantages",
            Column::Returns => "returns",
            Column::SumPiSquared => "sum_pi_squared",
            Column::ImplicitRewards => "implicit_rewards",
            Column::ImportanceWeights => "importance_weights",
        }
    }

    /// What has to happen for the column to exist.
    pub fn remedy(self) -> &'static str {
        match self {
            Column::RolloutLogProbs => "sample with an engine that returns log-probs",
            Column::OldLogProbs => "score the batch with the policy first",
            Column::RefLogProbs => "give the run a reference policy",
            Column::Values => "give the run a critic",
            Column::TokenRewards => "score the batch with a reward function first",
            Column::Advantages => "run an advantage estimator first",
            Column::Returns => "use an advantage estimator that computes returns (GAE)",
            Column::SumPiSquared => "require `sum_pi_squared` of the run",
            Column::ImplicitRewards => "train an implicit reward model beside the policy (PRIME)",
            Column::ImportanceWeights => "set algorithm.rollout_correction",
        }
    }
}
