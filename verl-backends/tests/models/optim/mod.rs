//! Optimizers against their papers, and across a save.

mod reference;

use crate::learn::floats;
use burn::tensor::{Device, Tensor, TensorData};
use reference::{Param, Reference};
use verl_backends::optim::{
    Adafactor, AdafactorConfig, AdamW, AdamW8bit, AdamW8bitConfig, AdamWConfig, Lion, LionConfig,
    Muon, MuonConfig, orthogonalise,
};
use verl_core::Error;
use verl_core::optimizer::Optimizer;
use verl_core::rollout::WeightTensor;

/// Numbers from -1 to 1 that look random.
fn series(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from((state >> 40) as u32) / f64::from(1 << 23) - 1.0
    };
    // What f32 holds exactly, so that both sides start from the same numbers.
    (0..n).map(|_| f64::from(next() as f32)).collect()
}

fn param(name: &'static str, rows: usize, columns: usize, vector: bool) -> Param {
    Param {
        name,
        rows,
        columns,
        vector,
        values: series(name.len() as u64, rows * columns),
    }
}

/// A wide and a tall hidden matrix, an embedding and a norm.
fn params() -> Vec<Param> {
    vec![
        param("model.embed_tokens.weight", 30, 12, false),
        param("model.layers.0.mlp.up_proj.weight", 12, 20, false),
        param("model.layers.0.mlp.down_proj.weight", 20, 12, false),
        param("model.norm.weight", 1, 20, true),
    ]
}

fn tensor(like: &Param, values: &[f64]) -> WeightTensor {
    let values: Vec<f32> = values.iter().map(|v| *v as f32).collect();
    let device = Device::flex();
    match like.vector {
        true => WeightTensor::Vector(Tensor::from_floats(&values[..], &device)),
        false => {
            let data = TensorData::new(values, [like.rows, like.columns]);
            WeightTensor::Matrix(Tensor::from_data(data, &device))
        }
    }
}

fn gradient(step: u64, i: usize, n: usize) -> Vec<f64> {
    let size = 10f64.powi(i as i32 - 2);
    let values = series(100 * step + i as u64 + 1, n);
    let values = values.into_iter().map(|g| f64::from((size * g) as f32));
    values.collect()
}

/// `steps` updates of all parameters, from the update after `start`.
fn train(
    optimizer: &mut dyn Optimizer,
    params: &[Param],
    mut weights: Vec<WeightTensor>,
    steps: std::ops::Range<u64>,
) -> Vec<WeightTensor> {
    for step in steps {
        optimizer.begin_step();
        for (i, param) in params.iter().enumerate() {
            let grad = tensor(param, &gradient(step, i, param.values.len()));
            weights[i] = optimizer
                .update(param.name, weights[i].clone(), grad, 1e-2)
                .unwrap();
        }
    }
    weights
}

fn start(params: &[Param]) -> Vec<WeightTensor> {
    params.iter().map(|p| tensor(p, &p.values)).collect()
}

fn follows(what: &str, optimizer: &mut dyn Optimizer, reference: &mut dyn Reference, within: f64) {
    let mut params = params();
    let weights = train(optimizer, &params, start(&params), 0..6);
    for step in 0..6 {
        for (i, param) in params.iter_mut().enumerate() {
            let grad = gradient(step, i, param.values.len());
            reference.update(step as i32 + 1, param, &grad, 1e-2);
        }
    }
    for (param, got) in params.iter().zip(weights) {
        for (i, (got, want)) in floats(&got).into_iter().zip(&param.values).enumerate() {
            let gap = (f64::from(got) - want).abs();
            assert!(gap < within, "{what}, {} [{i}]: {got} {want}", param.name);
        }
    }
}

#[test]
fn adamw_follows_its_paper() {
    let mut adamw = AdamW::new(AdamWConfig::default());
    follows("adamw", &mut adamw, &mut reference::AdamW::new(0.01), 2e-6);
}

#[test]
fn adafactor_follows_its_paper() {
    let mut adafactor = Adafactor::new(AdafactorConfig::default());
    let mut reference = reference::Adafactor::default();
    follows("adafactor", &mut adafactor, &mut reference, 2e-6);
}

#[test]
fn lion_follows_its_paper() {
    let mut lion = Lion::new(LionConfig::default());
    follows("lion", &mut lion, &mut reference::Lion::default(), 1e-6);
}

#[test]
fn muon_follows_its_paper() {
    let mut muon = Muon::new(MuonConfig::default());
    follows("muon", &mut muon, &mut reference::Muon::new(), 2e-5);
}

#[test]
fn moments_in_8_bits_follow_those_in_32() {
    // The last block is not full, and the norm stays in f32.
    let params = [
        param("model.layers.0.mlp.up_proj.weight", 81, 70, false),
        param("model.norm.weight", 1, 70, true),
    ];
    let run = |optimizer: &mut dyn Optimizer| -> Vec<Vec<f32>> {
        let weights = train(optimizer, &params, start(&params), 0..50);
        weights.iter().map(floats).collect()
    };
    let full = run(&mut AdamW::new(AdamWConfig::default()));
    let coded = run(&mut AdamW8bit::new(AdamW8bitConfig::default()));
    let distance = |a: &[f32], b: &[f32]| -> f64 {
        let square = |(a, b): (&f32, &f32)| f64::from(a - b).powi(2);
        a.iter().zip(b).map(square).sum::<f64>().sqrt()
    };
    let first = floats(&tensor(&params[0], &params[0].values));
    let off = distance(&coded[0], &full[0]) / distance(&full[0], &first);
    println!("after 50 updates 8 bits are off by {off:.4} of the way");
    assert!(off > 0.0 && off < 0.05, "{off}");
    assert_eq!(coded[1], full[1]);
}

#[test]
fn bytes_per_weight_are_as_documented() {
    let params = [param("model.layers.0.mlp.up_proj.weight", 128, 512, false)];
    let weights = params[0].values.len() as f64;
    let per_weight = |mut optimizer: Box<dyn Optimizer>| {
        train(&mut *optimizer, &params, start(&params), 0..1);
        optimizer.state().bytes() as f64 / weights
    };
    let [adamw, adamw_8bit, adafactor, lion, muon] =
        optimizers(4096).map(|(_, optimizer)| per_weight(optimizer));
    assert_eq!((adamw, lion, muon), (8.0, 4.0, 4.0));
    assert_eq!(adamw_8bit, 2.0 + 2.0 * 4.0 / 256.0);
    assert_eq!(adafactor, 4.0 * (128.0 + 512.0) / weights);
}

/// One of each; tensors from `min_weights` on have moments in 8 bits.
fn optimizers(min_weights: usize) -> [(&'static str, Box<dyn Optimizer>); 5] {
    let adamw_8bit = AdamW8bitConfig {
        min_weights,
        ..Default::default()
    };
    [
        ("adamw", Box::new(AdamW::new(Default::default()))),
        ("adamw_8bit", Box::new(AdamW8bit::new(adamw_8bit))),
        ("adafactor", Box::new(Adafactor::new(Default::default()))),
        ("lion", Box::new(Lion::new(Default::default()))),
        ("muon", Box::new(Muon::new(Default::default()))),
    ]
}

fn bits(weights: &[WeightTensor]) -> Vec<Vec<u32>> {
    let of = |tensor| floats(tensor).into_iter().map(f32::to_bits).collect();
    weights.iter().map(of).collect()
}

#[test]
fn a_restored_optimizer_goes_on_as_if_never_stopped() {
    let params = params();
    for ((name, mut whole), (_, mut again)) in optimizers(100).into_iter().zip(optimizers(100)) {
        let half = train(&mut *whole, &params, start(&params), 0..3);
        let saved = whole.state();
        assert_eq!((saved.optimizer.as_str(), saved.step), (name, 3));
        assert_eq!(saved.codes.is_empty(), name != "adamw_8bit");
        again.load_state(saved).unwrap();
        let want = train(&mut *whole, &params, half.clone(), 3..6);
        let got = train(&mut *again, &params, half, 3..6);
        assert!(bits(&want) == bits(&got), "{name}");
    }
}

#[test]
fn the_state_of_another_optimizer_is_refused() {
    let params = params();
    for (writer, mut written) in optimizers(100) {
        train(&mut *written, &params, start(&params), 0..1);
        for (reader, mut read) in optimizers(100) {
            match read.load_state(written.state()) {
                Ok(()) => assert_eq!(reader, writer),
                Err(Error::ForeignState { expected, found }) => {
                    assert_eq!((expected, found.as_str()), (reader, writer));
                    assert_ne!(reader, writer);
                }
                Err(other) => panic!("{writer} to {reader}: {other}"),
            }
        }
    }
}

#[test]
fn a_state_that_lacks_a_tensor_or_has_one_more_is_refused() {
    let params = params();
    for (name, mut optimizer) in optimizers(100) {
        train(&mut *optimizer, &params, start(&params), 0..1);
        let mut more = optimizer.state();
        let stray = more.tensors[0].1.clone();
        more.tensors.push(("stray".into(), stray));
        let error = optimizer.load_state(more).unwrap_err().to_string();
        let want = format!("the state of `{name}` has the unknown tensor `stray`");
        assert_eq!(error, want);
        let lost = match name {
            "adamw_8bit" => "exp_avg_sq_scales.",
            "adafactor" => "exp_avg_sq_col.",
            // Has one tensor per parameter, and nothing to miss.
            "lion" => continue,
            _ => "exp_avg_sq.",
        };
        let mut fewer = optimizer.state();
        fewer.tensors.retain(|(key, _)| !key.starts_with(lost));
        let error = optimizer.load_state(fewer).unwrap_err().to_string();
        let want = format!("the state of `{name}` has no `{lost}");
        assert!(error.starts_with(&want), "{error}");
    }
}

#[test]
fn a_gradient_of_another_shape_is_refused() {
    let wide = param("model.layers.0.mlp.up_proj.weight", 12, 20, false);
    let tall = param("model.layers.0.mlp.up_proj.weight", 20, 12, false);
    for (name, mut optimizer) in optimizers(100).into_iter().skip(1) {
        optimizer.begin_step();
        let (weights, grad) = (tensor(&wide, &wide.values), tensor(&tall, &tall.values));
        let error = optimizer.update(wide.name, weights, grad, 1e-2);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("another shape"), "{name}: {error}");
    }
}

#[test]
fn orthogonalising_brings_singular_values_near_one() {
    for (rows, columns) in [(24, 40), (40, 24), (16, 16)] {
        let values: Vec<f32> = series(5, rows * columns)
            .iter()
            .map(|v| *v as f32)
            .collect();
        let data = TensorData::new(values, [rows, columns]);
        let matrix = Tensor::<2>::from_data(data, &Device::flex());
        let result = WeightTensor::Matrix(orthogonalise(matrix, 5));
        let result: Vec<f64> = floats(&result).into_iter().map(f64::from).collect();
        let turned = reference::transpose(&result, rows, columns);
        let (short, gram) = match rows <= columns {
            true => (
                rows,
                reference::product(&result, &turned, rows, columns, rows),
            ),
            false => (
                columns,
                reference::product(&turned, &result, columns, rows, columns),
            ),
        };
        for value in reference::eigenvalues(gram, short) {
            let singular = value.sqrt();
            assert!((0.6..1.3).contains(&singular), "{singular}");
        }
    }
}
