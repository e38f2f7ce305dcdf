//! What must hold for any batch, whatever its numbers.

mod advantages;
mod losses;
mod policy_losses;
mod promises;
mod sample;
