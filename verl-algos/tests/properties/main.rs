//! What must hold for any batch, whatever its numbers.

mod advantages;
mod estimators;
mod losses;
mod options;
mod policy_losses;
mod promises;
mod sample;
