//! Whole runs of a tiny model.

mod parts;
mod resume;
mod runs;
