//! Cases whose right answer is known by hand: faults met in practice, and each
//! row of "Where we differ from verl" in `docs/algorithms.md`.

mod answer;
mod differences;
mod documented;
mod practice;
