//! What must hold for any batch, whatever its numbers.

mod advantages;
mod losses;
mod sample;
