//! The data model: ragged, typed, on the host.

/// A token id.
pub type TokenId = u32;
