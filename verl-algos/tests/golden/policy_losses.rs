//! The policy losses beyond the clipped surrogate.

use crate::losses::aggregation;
use crate::reference::{Case, cases};
use crate::rows::{Rows, gradient};
use serde::Serialize;
use serde::de::DeserializeOwned;
use verl_algos::cispo::CispoConfig;
use verl_algos::clip_cov::{ClipCovConfig, ClipCovLoss};
use verl_algos::dppo::{Divergence, DppoConfig};
use verl_algos::dro::DroConfig;
use verl_algos::gmpo::GmpoConfig;
use verl_algos::gspo::GspoConfig;
use verl_algos::kl_cov::KlCovConfig;
use verl_algos::policy_gradient::PolicyGradientLoss;
use verl_algos::positive_lm::PositiveLmConfig;
use verl_algos::rollout_correction::Corrected;
use verl_algos::sapo::SapoConfig;
use verl_algos::sppo::{SoftMeanConfig, SoftMeanOver, SppoConfig};
use verl_core::algorithm::{
    AdvantageEstimator, LossInput, LossOutput, Objective, ObjectiveValue, PolicyLoss,
};
use verl_core::math::{Denominators, LossAggregation};
use verl_core::types::{Column, Trajectory};

/// The options of a case that a config has, over its defaults.
fn options<C: Serialize + DeserializeOwned>(case: &Case, defaults: C) -> C {
    let serde_json::Value::Object(known) = serde_json::to_value(&defaults).unwrap() else {
        panic!("{}: not a struct", case.name);
    };
    let given = known.keys().filter(|key| !case.config(key).is_null());
    let given: Vec<&str> = given.map(String::as_str).collect();
    let mut reader = case.settings(&given, &[]).reader("algorithm", "test");
    let config = reader.take(defaults).unwrap();
    reader.finish().unwrap();
    config
}

/// Rows with old log-probs, advantages and, where given, importance weights.
fn rows(case: &Case) -> Rows {
    let mut rows = Rows::of(case);
    rows.set(Column::OldLogProbs, &case.input("old_log_prob"));
    rows.set(Column::Advantages, &case.input("advantages"));
    if let Some(weights) = case.optional_input("rollout_is_weights") {
        rows.set(Column::ImportanceWeights, &weights);
    }
    rows
}

/// The aggregation of a case, and the size of its mini-batch.
fn scale(case: &Case, rows: &Rows) -> (LossAggregation, Denominators) {
    let global = case.config("global_batch_info");
    let mode = aggregation(
        case.text("loss_agg_mode"),
        global["loss_scale_factor"].as_f64(),
        case.input("log_prob").width(),
    );
    let tokens = global["batch_num_tokens"].as_f64();
    let sequences = global["global_batch_size"].as_f64();
    (mode, rows.denominators(tokens, sequences))
}

/// Compares loss, gradient and metrics.
fn reproduce(
    case: &Case,
    rows: &Rows,
    loss: Box<dyn PolicyLoss>,
    (aggregation, denominators): (LossAggregation, Denominators),
) -> ObjectiveValue {
    let loss = match case.optional_input("rollout_is_weights") {
        Some(_) => Box::new(Corrected::new(loss)),
        None => loss,
    };
    let objective = Objective {
        loss: &*loss,
        aggregation,
        denominators,
        entropy_coeff: 0.0,
        kl: None,
        temperature: 1.0,
    };
    let log_probs_n = rows.leaf(&case.input("log_prob"));
    let value = rows.policy(&objective, log_probs_n.clone(), None);
    // The reference multiplies by the ranks over which it later averages.
    let ranks = case.config("global_batch_info")["dp_size"].as_f64();
    let loss = value.loss.clone().mul_scalar(ranks.unwrap_or(1.0) as f32);
    case.check_output("loss", &[loss.clone().into_scalar::<f32>()]);
    let gradient = rows.unpack(&gradient(&loss, &log_probs_n), 1);
    case.check_output("grad_log_prob", &gradient);

    // The reference's are means over the rows, ours over the mini-batch.
    let share = rows.lengths().sum::<usize>() as f64 / denominators.tokens as f64;
    for (name, want) in case.metrics() {
        match value.metrics.iter().find(|(ours, _)| ours == name) {
            Some((_, got)) => case.check_number(name, got / share, want),
            // A constant that the reference logs for want of a meaning.
            None => assert!(
                name.starts_with("actor/pg_clipfrac") && want == 0.0,
                "{}: no metric {name}",
                case.name
            ),
        }
    }
    value
}

/// All cases of a file.
fn reproduce_all(file: &str, loss: impl Fn(&Case) -> Box<dyn PolicyLoss>) {
    for case in cases(file) {
        let rows = rows(&case);
        let scale = scale(&case, &rows);
        reproduce(&case, &rows, loss(&case), scale);
    }
}

#[test]
fn gspo() {
    for file in ["policy_loss_gspo", "policy_loss_gspo_clamp"] {
        reproduce_all(file, |case| {
            Box::new(options(case, GspoConfig::default()).build().unwrap())
        });
    }
}

#[test]
fn cispo() {
    reproduce_all("policy_loss_cispo", |case| {
        Box::new(options(case, CispoConfig::default()).build().unwrap())
    });
}

#[test]
fn sapo() {
    for case in cases("policy_loss_sapo") {
        let rows = rows(&case);
        let (_, sizes) = scale(&case, &rows);
        let loss = options(&case, SapoConfig::default()).build().unwrap();
        // The reference ignores the mode of the case.
        let scale = (LossAggregation::SeqMeanTokenMean, sizes);
        reproduce(&case, &rows, Box::new(loss), scale);
    }
}

#[test]
fn gmpo() {
    for case in cases("policy_loss_geo_mean") {
        let mut rows = rows(&case);
        // The reference weighs a row by the geometric mean of its weights.
        for t in rows.batch.trajectories_mut() {
            let Ok(weights) = t.get(Column::ImportanceWeights, "test") else {
                continue;
            };
            let logs = t.policy_positions().map(|i| weights[i].ln());
            let mean = (logs.sum::<f32>() / t.policy_tokens().max(1) as f32).exp();
            let column = vec![mean; weights.len()];
            t.set(Column::ImportanceWeights, column).unwrap();
        }
        let mut sizes = rows.denominators(None, None);
        // Rows without a token count in the reference.
        sizes.sequences = rows.batch.len();
        let loss = options(&case, GmpoConfig::default()).build().unwrap();
        let scale = (LossAggregation::SeqMeanTokenMean, sizes);
        reproduce(&case, &rows, Box::new(loss), scale);
    }
}

/// Clip-Cov with the choice that the reference drew.
#[derive(Debug)]
struct Drawn(ClipCovLoss, Vec<usize>);

impl PolicyLoss for Drawn {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn needs(&self) -> &[Column] {
        self.0.needs()
    }

    fn per_token(&self, input: &LossInput<'_>) -> verl_core::Result<LossOutput> {
        self.0.without(input, &self.1)
    }
}

#[test]
fn clip_cov() {
    for case in cases("policy_loss_clip_cov") {
        let rows = rows(&case);
        let log_probs = case.input("log_prob");
        let loss = options(&case, ClipCovConfig::default()).build().unwrap();

        let mut places = log_probs.clone();
        places.data = (0..places.data.len()).map(|i| i as f32).collect();
        let places = rows.pack(&places, 1).concat();
        let trajectories: Vec<&Trajectory> = rows.batch.trajectories().collect();
        let input = LossInput::new(&trajectories, rows.leaf(&log_probs), None).unwrap();
        let candidates = loss.candidates(&input).unwrap();
        let at: Vec<f32> = candidates.iter().map(|i| places[*i]).collect();
        case.check_output("candidates", &at);

        let drawn = case.optional_input("selected").map(|t| t.data);
        let loss: Box<dyn PolicyLoss> = match drawn {
            Some(drawn) if drawn.len() < candidates.len() => {
                let packed = |place: &f32| places.iter().position(|p| p == place).unwrap();
                Box::new(Drawn(loss, drawn.iter().map(packed).collect()))
            }
            _ => Box::new(loss),
        };
        reproduce(&case, &rows, loss, scale(&case, &rows));
    }
}

#[test]
fn kl_cov() {
    reproduce_all("policy_loss_kl_cov", |case| {
        Box::new(options(case, KlCovConfig::default()).build().unwrap())
    });
}

#[test]
fn dppo() {
    for (file, divergence) in [
        ("policy_loss_dppo_tv", Divergence::Tv),
        ("policy_loss_dppo_kl", Divergence::Kl),
    ] {
        reproduce_all(file, |case| {
            let config = options(case, DppoConfig::new(divergence));
            Box::new(config.build(divergence).unwrap())
        });
    }
}

#[test]
fn dro() {
    reproduce_all("policy_loss_dro", |case| {
        Box::new(options(case, DroConfig::default()).build().unwrap())
    });
}

#[test]
fn policy_gradient() {
    for file in ["policy_loss_reinforce", "policy_loss_gpg"] {
        reproduce_all(file, |_| Box::new(PolicyGradientLoss));
    }
}

/// No loss, so that what is added to it can be seen alone.
#[derive(Debug)]
struct Nothing;

impl PolicyLoss for Nothing {
    fn name(&self) -> &str {
        "nothing"
    }

    fn needs(&self) -> &[Column] {
        &[]
    }

    fn per_token(&self, input: &LossInput<'_>) -> verl_core::Result<LossOutput> {
        Ok(LossOutput {
            loss_n: input.log_probs_n.clone().mul_scalar(0.0),
            metrics_n: Vec::new(),
        })
    }
}

#[test]
fn positive_lm() {
    for case in cases("vapo_positive_lm_loss") {
        let mut rows = Rows::of(&case);
        let correct = case.input("correct").data;
        let mut tokens = 0;
        for (t, correct) in rows.batch.trajectories_mut().zip(&correct) {
            t.set_score(*correct).unwrap();
            tokens += *correct as usize * t.policy_tokens();
        }
        let config = PositiveLmConfig {
            positive_lm_coef: case.number("mu").unwrap() as f32,
            ..PositiveLmConfig::default()
        };
        let loss = config.build(Box::new(Nothing)).unwrap();
        // The paper divides by the tokens of correct answers.
        let mut sizes = rows.denominators(None, None);
        sizes.tokens = tokens;
        let scale = (LossAggregation::TokenMean, sizes);
        reproduce(&case, &rows, Box::new(loss), scale);
    }
}

#[test]
fn sppo() {
    for case in cases("sppo") {
        let mut rows = Rows::of(&case);
        let loss = options(&case, SppoConfig::default()).build().unwrap();
        let mut config = options(&case, SoftMeanConfig::default());
        config.softmean_over = SoftMeanOver::Batch;
        let estimator = config.build().unwrap();
        let rewards = case.input("seq_rewards").data;
        let mean = estimator.soft_mean(&rewards) as f32;
        let less_mean: Vec<f32> = rewards.iter().map(|r| r - mean).collect();
        case.check_output("seq_level_rewards", &less_mean);

        rows.set(Column::OldLogProbs, &case.input("old_log_prob"));
        // A row without a token cannot hold its reward as one of a token, but
        // the reference counts it in the soft mean.
        if rows.lengths().all(|n| n > 0) {
            for (t, reward) in rows.batch.trajectories_mut().zip(&rewards) {
                t.set_score(*reward).unwrap();
            }
            let estimate = estimator.estimate(&rows.batch).unwrap();
            for (row, want) in estimate.advantages.iter().zip(&less_mean) {
                let got = row.iter().copied().find(|a| *a != 0.0).unwrap();
                case.check("advantage", &[got], &[*want]);
            }
        }
        for (t, advantage) in rows.batch.trajectories_mut().zip(&less_mean) {
            let row = vec![*advantage; t.response().len()];
            t.set(Column::Advantages, row).unwrap();
        }
        let scale = (
            LossAggregation::SeqMeanTokenMean,
            rows.denominators(None, None),
        );
        reproduce(&case, &rows, Box::new(loss), scale);
    }
}
