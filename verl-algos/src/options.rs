//! Checking options.

use std::fmt::Display;
use verl_core::{Error, Result};

/// Refuses an option of the `algorithm` section whose value is not `ok`.
pub(crate) fn require(key: &str, value: impl Display, ok: bool, want: &str) -> Result<()> {
    match ok {
        true => Ok(()),
        false => Err(Error::config(
            format!("algorithm.{key}"),
            format!("{value} is out of range; it must be {want}"),
        )),
    }
}
