//! Which groups are worth training on.

use crate::Result;
use crate::types::Group;
use std::fmt;

/// Decides which groups of answers enter a step. The others are dropped, and
/// more prompts are sampled in their place.
///
/// # Example
/// Keep prompts that some answer got right:
/// ```
/// use verl_core::algorithm::GroupFilter;
/// use verl_core::types::Group;
///
/// #[derive(Debug)]
/// struct Solvable;
///
/// impl GroupFilter for Solvable {
///     fn keeps(&self, group: &Group) -> verl_core::Result<bool> {
///         Ok(group.trajectories().iter().any(|t| t.total_reward() > 0.0))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a group filter",
    note = "implement `GroupFilter`; see its example"
)]
pub trait GroupFilter: fmt::Debug + Send + Sync {
    /// Whether the group is trained on.
    ///
    /// # Errors
    /// When the group lacks what the filter looks at.
    fn keeps(&self, group: &Group) -> Result<bool>;
}

/// Dynamic sampling: groups that the filter drops are replaced by those of new
/// prompts until the step's batch is full (DAPO, arXiv:2503.14476, section 3.2).
#[derive(Debug, Clone, Copy)]
pub struct DynamicSampling<'a> {
    /// What a group must be like.
    pub filter: &'a dyn GroupFilter,
    /// Most generation batches per step; 0 sets no limit. When it is reached
    /// the step trains on the groups it has, and says so.
    pub max_gen_batches: usize,
}

const _: fn(&dyn GroupFilter) = |_| {};
