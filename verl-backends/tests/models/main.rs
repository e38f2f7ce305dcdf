//! Every reference model: what it computes, loads, saves and learns.

mod forward;
mod generate;
mod gguf;
mod golden;
mod learn;
