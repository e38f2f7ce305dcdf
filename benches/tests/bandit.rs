//! Every algorithm learns the contextual bandit, and what should not learn it
//! does not.

use serde_json::json;
use verl::PolicyLoss;
use verl::algos::{Catalogue, ClippedLoss};
use verl::backends::burn::tensor::Tensor;
use verl::core::algorithm::{LossInput, LossOutput};
use verl::core::types::Column;
use verl_benches::bandit::{Bandit, TablePolicy, expected_reward};

/// Policy updates of the short form.
const STEPS: u64 = 40;
/// Expected reward that every run must reach; the uniform policy has 0.12.
const BAR: f64 = 0.7;

#[test]
fn every_algorithm_learns_over_three_seeds() {
    let catalogue = Catalogue::builtin();
    for name in catalogue.names() {
        for seed in 1..=3 {
            let reward = Bandit::new(name, seed, STEPS).train(&catalogue).unwrap();
            println!("{name}, seed {seed}: {reward:.3}");
            assert!(reward > BAR, "{name}, seed {seed}: {reward}");
        }
    }
}

/// The clipped loss times a number.
#[derive(Debug)]
struct Times(f32);

impl PolicyLoss for Times {
    fn name(&self) -> &str {
        "times"
    }
    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }
    fn per_token(&self, input: &LossInput<'_>) -> verl::Result<LossOutput> {
        let loss_n: Tensor<1> = ClippedLoss::default().per_token(input)?.loss_n;
        Ok(LossOutput {
            loss_n: loss_n.mul_scalar(self.0),
            metrics_n: Vec::new(),
        })
    }
}

#[test]
fn a_wrong_sign_or_a_lost_gradient_stays_below_the_bar() {
    let untrained = expected_reward(&TablePolicy::new(0.1)).unwrap();
    let with_factor = |factor: f32| {
        let mut catalogue = Catalogue::builtin();
        catalogue
            .loss("times", move |_| Ok(Box::new(Times(factor))))
            .unwrap();
        let mut run = Bandit::new("grpo", 1, STEPS);
        run.options.0.insert("policy_loss".into(), json!("times"));
        run.train(&catalogue).unwrap()
    };
    assert!((untrained - 0.117).abs() < 0.001, "{untrained}");
    assert!(with_factor(1.0) > BAR);
    assert_eq!(with_factor(0.0), untrained);
    assert!(with_factor(-1.0) < untrained);
}

#[test]
fn a_run_can_be_repeated() {
    let catalogue = Catalogue::builtin();
    let train = || Bandit::new("ppo", 1, 5).train(&catalogue).unwrap();
    assert_eq!(train(), train());
}
