//! KL: per token, in the reward, and its coefficient.

use crate::reference::build;
use crate::reference::{Case, cases};
use crate::rows::{Rows, gradient};
use burn::tensor::{Device, Tensor, TensorData};
use serde_json::json;
use verl_core::algorithm::{KlInReward, apply_kl_in_reward};
use verl_core::math::{KlController, KlEstimator};
use verl_core::types::{Column, Trajectory};

fn estimator(name: &str) -> KlEstimator {
    serde_json::from_value(json!(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Values and gradients of an estimator at the case's inputs.
fn evaluate(case: &Case, estimator: KlEstimator) -> (Vec<f32>, Vec<f32>) {
    let (log_probs, reference) = (case.input("log_prob").data, case.input("ref_log_prob").data);
    let n = log_probs.len();
    let host = log_probs.iter().zip(&reference);
    let host: Vec<f32> = host.map(|(l, r)| estimator.value(*l, *r)).collect();

    let device = Device::flex();
    let leaf = Tensor::<1>::from_data(TensorData::new(log_probs, [n]), &device.clone().autodiff())
        .require_grad();
    let reference = Tensor::from_data(TensorData::new(reference, [n]), &device);
    let kl_n = estimator.per_token(leaf.clone(), reference);
    let gradient = gradient(&kl_n.clone().sum(), &leaf);
    let values = kl_n.into_data().try_to_vec::<f32>().unwrap();
    case.check("host value", &host, &values);
    (values, gradient)
}

#[test]
fn per_token() {
    for case in cases("kl_penalty") {
        let name = case.text("kl_penalty");
        // verl's k3 is the cut form, which has a name of its own here.
        let form = name.replace("k3", "low_var_kl");
        let (values, gradient) = evaluate(&case, estimator(&form));
        case.check_output("value", &values);
        case.check_output("grad_log_prob", &gradient);
        if form == name {
            continue;
        }
        // Our k3 agrees wherever verl does not cut.
        let (values, gradient) = evaluate(&case, estimator(name));
        let (want, slope) = (case.output("value").data, case.output("grad_log_prob").data);
        for i in (0..want.len()).filter(|i| want[*i] < 10.0) {
            case.check("value where not cut", &values[i..=i], &want[i..=i]);
            case.check("gradient where not cut", &gradient[i..=i], &slope[i..=i]);
        }
    }
}

/// What PPO makes of the case's options.
fn in_reward(case: &Case) -> KlInReward {
    let name = case.text("kl_penalty").replace("k3", "low_var_kl");
    let mut control = case.config("kl_ctrl").clone();
    if control["type"] == "fixed" {
        // Without effect, and so refused here.
        let control = control.as_object_mut().unwrap();
        control.retain(|key, _| key == "type" || key == "kl_coef");
    }
    let settings = case.settings(
        &[],
        &[
            ("use_kl_in_reward", json!(true)),
            ("kl_penalty", json!(name)),
            ("kl_ctrl", control),
        ],
    );
    build("ppo", &settings).kl_in_reward().unwrap()
}

#[test]
fn in_the_reward() {
    for case in cases("apply_kl_penalty") {
        let KlInReward { estimator, control } = in_reward(&case);
        let metric = |name: &str| {
            let metrics = case.metrics();
            metrics.iter().find(|(key, _)| *key == name).unwrap().1
        };
        let mut rows = Rows::of(&case);
        rows.set(Column::TokenRewards, &case.input("token_level_scores"));
        rows.set(Column::OldLogProbs, &case.input("old_log_probs"));
        rows.set(Column::RefLogProbs, &case.input("ref_log_prob"));

        let mut controller = KlController::new(control);
        case.check_number("coef_used", controller.coef(), metric("coef_used"));
        let kl = apply_kl_in_reward(&mut rows.batch, estimator, controller.coef()).unwrap();
        // Where the mask is 0 nothing is subtracted and nothing compared.
        let mask = case.input("response_mask").data;
        let got = rows.column(Column::TokenRewards);
        let want = case.output("token_level_rewards").data;
        for i in (0..mask.len()).filter(|i| mask[*i] != 0.0) {
            case.check("token_level_rewards", &got[i..=i], &want[i..=i]);
        }
        // verl's mean counts rows without a policy token, as 0.
        let live = rows.lengths().filter(|n| *n > 0).count();
        let current_kl = kl * live as f64 / rows.batch.len() as f64;
        case.check_number("current_kl", current_kl, metric("current_kl"));
        controller.update(current_kl, rows.batch.len());
        case.check_number("coef_next", controller.coef(), metric("coef_next"));
    }
}

#[test]
fn rewards_keep_what_is_masked() {
    let case = &cases("apply_kl_penalty")[0];
    let mut rows = Rows::of(case);
    rows.set(Column::TokenRewards, &case.input("token_level_scores"));
    rows.set(Column::OldLogProbs, &case.input("old_log_probs"));
    rows.set(Column::RefLogProbs, &case.input("ref_log_prob"));
    apply_kl_in_reward(&mut rows.batch, KlEstimator::K1, 0.5).unwrap();
    let finite = |t: &Trajectory| {
        let rewards = t.get(Column::TokenRewards, "test").unwrap();
        let agree = |(r, live): (&f32, &bool)| r.is_finite() == *live;
        rewards.iter().zip(t.response_mask()).all(agree)
    };
    assert!(rows.batch.trajectories().all(finite));
}

#[test]
fn controller() {
    for case in cases("kl_controller") {
        let config = serde_json::from_value(json!({
            "type": case.text("type"),
            "kl_coef": case.number("kl_coef"),
            "target_kl": case.number("target_kl"),
            "horizon": case.number("horizon"),
        }));
        let mut controller = KlController::new(config.unwrap());
        let (kls, steps) = (case.input("current_kl").data, case.input("n_steps").data);
        for ((kl, n), want) in kls.iter().zip(steps).zip(case.output("coef").data) {
            controller.update(f64::from(*kl), n as usize);
            case.check_number("coef", controller.coef(), f64::from(want));
        }
    }
}
