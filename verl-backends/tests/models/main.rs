//! Every reference model: what it computes, loads, saves and learns.

mod forward;
mod generate;
mod golden;
mod learn;
