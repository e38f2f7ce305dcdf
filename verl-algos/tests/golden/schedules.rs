//! Learning-rate schedules.

use crate::reference::{Case, cases};
use verl_core::math::{LrSchedule, ScheduleKind};

/// The schedule of a case, unless it asks for what is not offered: `wsd`,
/// several cosine cycles, a warm-up that does not start at 0 or counts from 1.
fn schedule(case: &Case) -> Option<LrSchedule> {
    let plain = [
        "num_cycles",
        "init_lr_ratio",
        "zero_indexed_step",
        "stable_ratio",
    ];
    if plain.iter().any(|key| !case.config(key).is_null()) {
        return None;
    }
    Some(LrSchedule {
        base: case.number("base_lr").unwrap(),
        kind: serde_json::from_value(case.config("type").clone()).unwrap(),
        warmup: case.number("num_warmup_steps").unwrap() as u64,
        total: case.number("num_training_steps").unwrap_or(0.0) as u64,
        min_ratio: case.number("min_lr_ratio").unwrap_or(0.0),
    })
}

#[test]
fn rates() {
    let mut run = 0;
    for case in cases("lr_schedules") {
        let Some(schedule) = schedule(&case) else {
            continue;
        };
        run += 1;
        for (step, want) in case.output("lr").data.iter().enumerate() {
            let step = step as u64;
            let after = schedule.kind == ScheduleKind::Cosine && step > schedule.total;
            // verl's cosine climbs again after the last step.
            let want = match after {
                true => schedule.base * schedule.min_ratio,
                false => f64::from(*want),
            };
            case.check_number(&format!("rate {step}"), schedule.lr_at(step), want);
        }
    }
    assert_eq!(run, 5);
}
