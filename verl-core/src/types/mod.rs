//! The data model: ragged, typed, on the host.
//!
//! A [`Trajectory`] owns what one sampled answer is made of; a [`Group`] is the
//! answers to one prompt occurrence; a [`Batch`] is groups. There is no padding
//! anywhere, so none can leak into a mean, a recursion or a loss.

mod batch;
mod column;
mod episode;
mod parts;
mod resample;
mod trajectory;

pub use batch::{Batch, Group};
pub use column::Column;
pub use episode::Episode;
pub use trajectory::{FinishReason, GroupId, Trajectory, TrajectoryParts};

/// A token id.
pub type TokenId = u32;
