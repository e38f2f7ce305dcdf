//! Whole runs of a tiny model.

mod field;
mod parts;
mod resume;
mod runs;
