//! The CPU device's own kernels: a decoder's forward and backward pass on
//! slices, for f32 models whose weights lie in this process's memory.
//!
//! They compute what the plain path on burn's operations computes, in fewer
//! passes over memory, on all threads and in the widest vector instructions
//! the machine has. The plain path serves every other device, type and layer,
//! and is what these are tested against.

mod adamw;
mod adamw_8bit;
mod adapter;
mod attention;
mod cache;
mod decode;
mod elementwise;
mod few;
mod gemm;
mod head;
mod layer;
mod linear;
mod norm;
mod rows;
mod trunk;
mod view;

pub(crate) use adamw::{Step, sum_of_squares, update};
pub(crate) use adamw_8bit::{Coded, update_8bit};
pub(crate) use cache::Cache;
pub(crate) use few::project;
pub(crate) use head::{HostHead, TokenGrad, TokenStats};
pub(crate) use linear::shortened;
pub(crate) use trunk::{HostModel, HostPass};
pub(crate) use view::{View, integer_tensor, integers, tensor, values};
