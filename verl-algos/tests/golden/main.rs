//! Every number of the reference files that the algorithms of this crate, and
//! the maths they stand on, should reproduce.
//!
//! A file's cases all run. Where one is set aside, or asks for what verl does
//! and we deliberately do not, a comment at that place says why.

mod advantages;
mod correction;
mod estimators;
mod kl;
mod losses;
mod policy_losses;
mod preferences;
mod prime;
mod reference;
mod rows;
mod schedules;
mod selection;
mod statistics;
