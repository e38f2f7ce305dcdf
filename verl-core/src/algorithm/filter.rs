//! Choosing the groups that are worth training on.

use crate::types::Group;
use std::fmt;

/// Decides whether a group is trained on.
pub trait GroupFilter: fmt::Debug + Send + Sync {
    /// Whether the group stays.
    fn keeps(&self, group: &Group) -> bool;
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
