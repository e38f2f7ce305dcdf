//! PPO: proximal policy optimisation with a critic, as it is used on language
//! models.
//!
//! Advantages are GAE's ([`Gae`](crate::Gae)) on the critic's values, whitened over the
//! batch; the policy's loss ([`ClippedLoss`](crate::ClippedLoss)) and the critic's
//! ([`ClippedValueLoss`](crate::ClippedValueLoss)) are clipped:
//!
//! ```text
//! J = mean(max(-A r, -A clip(r, 1 - low, 1 + high)))          r = pi / pi_old
//! V = mean(max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2)) / 2
//! ```
//!
//! KL(policy, reference) may be subtracted from the token rewards
//! (`use_kl_in_reward`, with a fixed or adaptive coefficient) or added to the
//! loss (`kl_loss_coef`).
//!
//! # Paper
//! arXiv:1707.06347, eq. 7; on language models arXiv:2203.02155, eq. 2;
//! adaptive KL arXiv:1909.08593, section 2.2.
//!
//! # Differences from the paper
//! - No KL term unless it is asked for, so that no reference policy is needed.
//! - The loss is bounded at negative advantages (dual clip); a `clip_ratio_c`
//!   beyond any ratio gives the paper's form.
//! - `whiten_advantages: false` leaves the advantages as GAE gives them.
//!
//! # Differences from verl
//! - Values and rewards at tokens that the policy did not produce never enter,
//!   and advantages there are 0.
//! - A batch with a single policy token has advantage 0 instead of failing.
//! - The KL that the adaptive controller steers is the mean over sequences
//!   with a policy token; verl counts the others as 0.
//!
//! # Metrics
//! `actor/pg_loss`, `critic/vf_loss`, and those of the two losses.
