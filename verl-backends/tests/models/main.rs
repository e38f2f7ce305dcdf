//! Every reference model: what it computes, loads, saves and learns.

mod codecs;
mod critic;
mod forward;
mod generate;
mod gguf;
mod golden;
mod kernels;
mod learn;
mod lora;
mod optim;
mod quantised;
