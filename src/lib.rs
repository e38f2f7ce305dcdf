//! verl
