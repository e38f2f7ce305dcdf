//! Masked statistics.

use crate::reference::{Case, Table, cases};
use verl_core::math::{mean_and_std, whiten};

/// Live values of rows.
fn live(values: &Table, mask: &Table) -> Vec<Vec<f32>> {
    let row = |(v, m): (&[f32], &[f32])| {
        let live = v.iter().zip(m).filter(|(_, m)| **m != 0.0);
        live.map(|(v, _)| *v).collect()
    };
    values.rows().zip(mask.rows()).map(row).collect()
}

fn mean(values: &[f32]) -> f32 {
    mean_and_std(values.iter().copied()).0 as f32
}

fn whitened(values: &Table, mask: &Table) -> Vec<f32> {
    let live = |row: &[f32]| row.iter().map(|m| *m != 0.0).collect();
    let masks: Vec<Vec<bool>> = mask.rows().map(live).collect();
    let masks: Vec<&[bool]> = masks.iter().map(Vec::as_slice).collect();
    let mut rows: Vec<Vec<f32>> = values.rows().map(<[f32]>::to_vec).collect();
    whiten(&mut rows, &masks);
    rows.concat()
}

/// Compares the operation of a case; `false` where it is not offered.
fn compare(case: &Case) -> bool {
    let (values, mask) = (case.input("values"), case.input("mask"));
    let rows = live(&values, &mask);
    let all = rows.concat();
    let axis = case.config("axis").as_i64();
    match case.text("op") {
        // Along axis 0 there is no use for it on ragged rows.
        "masked_mean" if axis == Some(0) => return false,
        "masked_mean" if axis.is_none() => case.check_output("result", &[mean(&all)]),
        "masked_mean" => {
            let means: Vec<f32> = rows.iter().map(|row| mean(row)).collect();
            case.check_output("result", &means);
        }
        "masked_var" if case.is_refused() => {
            // verl fails; the deviation of fewer than two values is 0 here.
            assert_eq!(mean_and_std(all.iter().copied()).1, 0.0, "{}", case.name);
        }
        "masked_var" => {
            let (n, unbiased) = (all.len() as f64, case.config("unbiased") == true);
            let variance = mean_and_std(all.iter().copied()).1.powi(2);
            let variance = if unbiased {
                variance
            } else {
                variance * (n - 1.0) / n
            };
            case.check_output("result", &[variance as f32]);
        }
        "masked_whiten" if case.is_refused() => {
            let zeros = vec![0.0; values.data.len()];
            assert_eq!(whitened(&values, &mask), zeros, "{}", case.name);
        }
        "masked_whiten" => {
            let shift = match case.config("shift_mean") == true {
                true => 0.0,
                false => mean(&all),
            };
            let (got, want) = (whitened(&values, &mask), case.output("whitened").data);
            for i in (0..want.len()).filter(|i| mask.data[*i] != 0.0) {
                case.check("whitened", &[got[i] + shift], &want[i..=i]);
            }
        }
        // Sums are written where they are needed.
        _ => return false,
    }
    true
}

#[test]
fn masked_operations() {
    let compared = cases("masked_ops")
        .iter()
        .filter(|case| compare(case))
        .count();
    assert_eq!(compared, 26);
}
