//! What the benches share.

pub mod bandit;
pub mod estimation;
