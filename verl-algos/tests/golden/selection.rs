//! Which groups and rows are trained on.

use crate::reference::{Table, cases};
use crate::rows::Rows;
use serde_json::json;
use verl_algos::dapo::FilterGroupsConfig;
use verl_algos::pf_ppo::PfPpoConfig;

#[test]
fn groups_whose_metric_varies() {
    for case in cases("group_filter") {
        let (metric, ids) = (case.input("metric").data, case.ids("index"));
        let mask = Table {
            shape: vec![ids.len(), 1],
            data: vec![1.0; ids.len()],
        };
        let mut rows = Rows::new(&mask, Some(&ids));
        rows.set_scores(&metric);
        rows.set_part("acc", &metric);
        for metric in ["score", "seq_reward", "acc"] {
            let config = FilterGroupsConfig {
                enable: true,
                metric: metric.into(),
                ..Default::default()
            };
            let filter = config.build().unwrap().unwrap();
            let groups = rows.batch.groups().iter();
            let kept = groups.filter(|group| filter.keeps(group).unwrap());
            let kept: Vec<f32> = kept.map(|group| group.id().0 as f32).collect();
            case.check_output("kept", &kept);
        }
    }
}

#[test]
fn pf_ppo_weights() {
    for case in cases("pf_ppo_weights") {
        let config: PfPpoConfig = serde_json::from_value(json!({
            "reweight_method": case.text("reweight_method"),
            "weight_pow": case.number("weight_pow"),
        }))
        .unwrap();
        let scores = case.input("token_level_scores");
        let scores: Vec<f32> = scores.rows().map(|row| row.iter().sum()).collect();
        let weights = config.build().unwrap().weights(&scores);
        case.check_output("weights", &weights);
    }
}
