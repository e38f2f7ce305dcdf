//! Advantage estimators on a large batch: 128 prompts with 8 answers of 4,096
//! tokens each. The aim is 50 ms for each of them on one core.
//!
//! ```text
//! cargo bench -p verl-benches --bench advantages
//! ```

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use verl_benches::estimation::{TOKENS, batch, estimators};

fn advantages(c: &mut Criterion) {
    let batch = batch().expect("a valid batch");
    let mut group = c.benchmark_group("advantages");
    group
        .sample_size(10)
        .throughput(Throughput::Elements((batch.len() * TOKENS) as u64));
    for estimator in estimators().expect("valid options") {
        group.bench_function(estimator.name(), |b| {
            b.iter(|| estimator.estimate(black_box(&batch)).expect("advantages"))
        });
    }
    group.finish();
}

criterion_group!(benches, advantages);
criterion_main!(benches);
