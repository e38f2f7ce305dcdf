//! The algorithm traits: what turns rewards into advantages, and advantages
//! into a loss.
//!
//! Three axes stay apart: the [`AdvantageEstimator`], the per-token
//! [`PolicyLoss`], and how per-token losses become one number
//! ([`LossAggregation`](crate::math::LossAggregation)). An [`Algorithm`]
//! bundles one of each with its defaults and says what it needs; the trainer
//! asks, and never compares a name.

mod advantage;
mod bundle;
mod composed;
mod filter;
mod hook;
mod kl_reward;
mod loss;
mod objective;
mod reward_model;

pub use advantage::{AdvantageEstimator, Advantages};
pub use bundle::{Algorithm, KlInReward, PolicyTerms, Requirements};
pub use composed::Composed;
pub use filter::{DynamicSampling, GroupFilter};
pub use hook::{BatchHook, Figures};
pub use kl_reward::apply_kl_in_reward;
pub use loss::{LossInput, LossOutput, PolicyLoss, ValueInput, ValueLoss};
pub use objective::{KlLoss, Objective, ObjectiveValue, ValueObjective};
pub use reward_model::{OnlineRewardModel, ProcessRewards};
