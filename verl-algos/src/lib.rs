//! verl-algos
