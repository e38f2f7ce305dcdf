//! Criterion benches of verl: see the `[[bench]]` targets.
