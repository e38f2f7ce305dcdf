//! Advantage estimators.

use crate::reference::build;
use crate::reference::{Case, cases};
use crate::rows::Rows;
use serde_json::json;
use verl_core::types::Column;

/// The rows of a case with groups and rewards.
pub(crate) fn rewarded(case: &Case) -> Rows {
    let mut rows = Rows::new(&case.input("response_mask"), Some(&case.ids("index")));
    rows.set(Column::TokenRewards, &case.input("token_level_rewards"));
    rows
}

fn grpo(case: &Case, singleton: &str) -> (Rows, Vec<f32>) {
    let keys = ["norm_adv_by_std_in_grpo", "epsilon"];
    let settings = case.settings(&keys, &[("singleton_groups", json!(singleton))]);
    let algorithm = build("grpo", &settings);
    let rows = rewarded(case);
    let estimate = algorithm.estimator().estimate(&rows.batch).unwrap();
    let advantages = rows.restore(&estimate.advantages);
    (rows, advantages)
}

#[test]
fn grpo_as_verl() {
    // Both files hold the same mathematics, as two implementations of verl.
    for case in ["adv_grpo", "adv_grpo_vectorized"]
        .into_iter()
        .flat_map(cases)
    {
        let (_, advantages) = grpo(&case, "raw");
        case.check_output("advantages", &advantages);
    }
}

#[test]
fn grpo_without_singletons() {
    for case in cases("adv_grpo") {
        let (rows, advantages) = grpo(&case, "zero");
        let alone = rows.batch.groups().iter().flat_map(|g| {
            let alone = g.trajectories().len() == 1;
            g.trajectories()
                .iter()
                .map(move |t| vec![f32::from(u8::from(alone)); t.response().len()])
        });
        let alone = rows.restore(&alone.collect::<Vec<_>>());
        let want = case.output("advantages").data;
        let want: Vec<f32> = want
            .iter()
            .zip(&alone)
            .map(|(w, alone)| w * (1.0 - alone))
            .collect();
        case.check("advantages", &advantages, &want);
    }
}

#[test]
fn gae() {
    for case in cases("adv_gae") {
        let algorithm = build("ppo", &case.settings(&["gamma", "lam"], &[]));
        let mut rows = Rows::of(&case);
        rows.set(Column::TokenRewards, &case.input("token_level_rewards"));
        rows.set(Column::Values, &case.input("values"));
        let estimate = algorithm.estimator().estimate(&rows.batch).unwrap();
        // The reference leaves numbers at masked positions; ours are 0 there.
        let mask = case.input("response_mask").data;
        for (name, got) in [
            ("advantages", estimate.advantages),
            ("returns", estimate.returns.unwrap()),
        ] {
            let want = case.output(name).data;
            let want: Vec<f32> = want.iter().zip(&mask).map(|(w, m)| w * m).collect();
            case.check(name, &rows.restore(&got), &want);
        }
    }
}
