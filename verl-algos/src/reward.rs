//! The reward itself as advantage, without a baseline.
//!
//! For losses that compare answers by their scores and read no advantage, such
//! as [DPO](crate::dpo), and as the plainest REINFORCE (Williams 1992).

use crate::group::rewards;
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Advantages};
use verl_core::types::{Batch, Column};

/// The estimator.
///
/// # Example
/// ```
/// use verl_algos::reward::RewardAdvantage;
/// use verl_core::algorithm::AdvantageEstimator;
/// use verl_core::types::Batch;
/// assert!(RewardAdvantage.estimate(&Batch::default())?.advantages.is_empty());
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RewardAdvantage;

impl AdvantageEstimator for RewardAdvantage {
    fn name(&self) -> &str {
        "reward"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let advantages_s: Vec<f32> = batch.groups().iter().flat_map(rewards).collect();
        Ok(Advantages::per_sequence(batch, &advantages_s))
    }
}
