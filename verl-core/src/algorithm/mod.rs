//! (module doc)
