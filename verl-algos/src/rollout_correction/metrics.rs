//! How far the training policy lies from the one that sampled.

use super::figures::{LIMIT, Metrics, Rows, max, mean, min, per_row, tokens};

/// Numbers over live tokens, `training` and `rollout` being log-probs.
///
/// ```text
/// kl                mean over tokens of -d          d = training - rollout
/// k3_kl             mean of exp(d) - 1 - d
/// training_ppl      mean over answers of exp(-mean(log-prob)); rollout_ppl alike
/// training_log_ppl  mean over answers of -mean(log-prob); rollout_log_ppl alike
/// log_ppl_diff      mean over answers of -mean(d); also of its size, its largest and smallest
/// ppl_ratio         mean over answers of exp(-mean(d))
/// chi2_token        mean of exp(d)^2 - 1
/// chi2_seq          mean over answers of exp(sum(d))^2 - 1
/// ```
pub(super) fn off_policy(training: &Rows, rollout: &Rows) -> Metrics {
    fn all(values: &[f64]) -> impl Iterator<Item = f64> + '_ {
        values.iter().copied()
    }
    let log_ratios = log_ratios(training, rollout);
    let row_mean = |row: &[f64]| mean(row.iter().copied());
    let (ours, theirs) = (per_row(training, row_mean), per_row(rollout, row_mean));
    let gap = per_row(&log_ratios, |row| -row_mean(row));
    let sums = per_row(&log_ratios, |row| row.iter().sum());
    let square = |log_ratio: f64| (2.0 * log_ratio.clamp(-LIMIT, LIMIT)).exp();
    // Cut where even an f64 would overflow.
    let k3 = |d: f64| d.min(700.0).exp_m1() - d;
    let figures = [
        ("training_ppl", mean(all(&ours).map(|l| (-l).exp()))),
        ("training_log_ppl", mean(all(&ours).map(|l| -l))),
        ("kl", mean(tokens(&log_ratios).map(|d| -d))),
        ("k3_kl", mean(tokens(&log_ratios).map(k3))),
        ("rollout_ppl", mean(all(&theirs).map(|l| (-l).exp()))),
        ("rollout_log_ppl", mean(all(&theirs).map(|l| -l))),
        ("log_ppl_diff", mean(all(&gap))),
        ("log_ppl_abs_diff", mean(all(&gap).map(f64::abs))),
        ("log_ppl_diff_max", max(all(&gap))),
        ("log_ppl_diff_min", min(all(&gap))),
        ("ppl_ratio", mean(all(&gap).map(f64::exp))),
        ("chi2_token", mean(tokens(&log_ratios).map(square)) - 1.0),
        ("chi2_seq", mean(all(&sums).map(square)) - 1.0),
    ];
    Metrics::from(figures.map(|(name, value)| (name.to_string(), value)))
}

/// `training - rollout`, token by token.
pub(super) fn log_ratios(training: &Rows, rollout: &Rows) -> Vec<Vec<f64>> {
    let row = |(ours, theirs): (&Vec<f64>, &Vec<f64>)| {
        ours.iter().zip(theirs).map(|(a, b)| a - b).collect()
    };
    training.iter().zip(rollout).map(row).collect()
}
