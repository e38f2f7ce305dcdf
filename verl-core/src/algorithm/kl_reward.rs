//! KL as part of the reward.

use crate::Result;
use crate::math::KlEstimator;
use crate::types::{Batch, Column};

/// Subtracts `coef * KL(policy, reference)` from every policy token's reward.
///
/// Returns the mean over the sequences with a policy token of their mean KL,
/// which is what a KL controller steers. (verl also counts sequences without
/// one, as 0.)
///
/// # Errors
/// [`crate::Error::MissingColumn`] without rewards, old or reference log-probs.
pub fn apply_kl_in_reward(batch: &mut Batch, estimator: KlEstimator, coef: f64) -> Result<f64> {
    const WHO: &str = "KL in reward";
    let (mut total, mut sequences) = (0f64, 0usize);
    for t in batch.trajectories_mut() {
        let mut rewards = t.get(Column::TokenRewards, WHO)?.to_vec();
        let old = t.get(Column::OldLogProbs, WHO)?;
        let reference = t.get(Column::RefLogProbs, WHO)?;
        let mut sum = 0f64;
        for i in t.policy_positions() {
            let kl = f64::from(estimator.value(old[i], reference[i]));
            rewards[i] = (f64::from(rewards[i]) - coef * kl) as f32;
            sum += kl;
        }
        let tokens = t.policy_tokens();
        if tokens > 0 {
            total += sum / tokens as f64;
            sequences += 1;
        }
        t.set(Column::TokenRewards, rewards)?;
    }
    Ok(total / sequences.max(1) as f64)
}
