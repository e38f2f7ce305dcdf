//! Logits, log-probs, entropies, values and rewards against transformers.

use crate::golden::{assert_close, ids, largest, loaded_models, rows, tiny_models, unpadded_rows};
use burn::tensor::Device;
use std::path::Path;
use std::sync::Arc;
use verl_backends::model::{HeadKind, Layout, Model, ModelConfig, Segment};
use verl_backends::weights::load_model;

pub(crate) fn outputs(model: &Model, sequences: &[Vec<u32>]) -> Vec<f32> {
    let segments: Vec<Segment> = sequences.iter().map(|s| Segment::whole(s.len())).collect();
    let layout = Layout::new(&segments, &model.device());
    let hidden = model.hidden(&sequences.concat(), &layout).unwrap();
    model.output(hidden).into_data().iter::<f32>().collect()
}

fn close_logits(what: &str, got: &[f32], want: &[f32]) {
    assert_close(what, got, want, 2e-4 * largest(want));
}

#[test]
fn padded_rows_give_the_reference_outputs() {
    for (name, model, golden) in loaded_models() {
        for case in golden.cases("forward") {
            let sequences = unpadded_rows(&case["inputs"]);
            let what = format!("{name}, {}", case["desc"]);
            let got = outputs(&model, &sequences);
            match model.config.head {
                HeadKind::CausalLm { .. } => close_logits(
                    &what,
                    &got,
                    &golden.floats(&case["outputs"]["logits_valid"]),
                ),
                HeadKind::TokenScore => {
                    let values = case["outputs"]["values"].as_array().unwrap();
                    let want: Vec<f32> = values.iter().flat_map(|v| golden.floats(v)).collect();
                    close_logits(&what, &got, &want);
                }
                HeadKind::SequenceScore => {
                    let want = golden.floats(&case["outputs"]["rewards"]);
                    close_logits(&what, &last_of_each(&got, &sequences), &want);
                }
            }
        }
    }
}

fn last_of_each(scores: &[f32], sequences: &[Vec<u32>]) -> Vec<f32> {
    let mut end = 0;
    let last = |s: &Vec<u32>| {
        end += s.len();
        scores[end - 1]
    };
    sequences.iter().map(last).collect()
}

#[test]
fn packed_rows_do_not_see_each_other() {
    for (name, model, golden) in loaded_models() {
        for case in golden.cases("packed") {
            let packed = rows(&case["inputs"]["input_ids"]).concat();
            let borders = ids(&case["inputs"]["cu_seqlens"]);
            let cut = |w: &[u32]| {
                packed[w[0] as usize..w[1] as usize]
                    .iter()
                    .map(|id| *id as u32)
                    .collect()
            };
            let sequences: Vec<Vec<u32>> = borders.windows(2).map(cut).collect();
            let want = golden.floats(&case["outputs"]["logits"]);
            close_logits(
                &format!("{name}, packed"),
                &outputs(&model, &sequences),
                &want,
            );
        }
    }
}

#[test]
fn both_spellings_of_a_config_mean_the_same() {
    for (name, dir, _) in tiny_models() {
        let old = dir.join("config_old_style.json");
        if old.exists() {
            let mut new = ModelConfig::from_dir(&dir).unwrap();
            let old = ModelConfig::from_file(&old).unwrap();
            new.source = old.source.clone();
            assert_eq!(new, old, "{name}");
        }
    }
}

#[test]
fn a_shared_prompt_changes_nothing() {
    for (name, model, _) in loaded_models() {
        let (prompt, answers) = (
            [5u32, 9, 30, 7, 11],
            [
                vec![3u32, 4, 8],
                vec![10, 12],
                vec![6, 5, 4, 3, 2, 1, 7, 8, 9],
            ],
        );
        let whole: Vec<Vec<u32>> = answers.iter().map(|a| [&prompt[..], a].concat()).collect();
        let width = outputs(&model, &[vec![1]]).len();
        let separate = outputs(&model, &whole);
        let mut segments = vec![Segment::whole(prompt.len())];
        segments.extend(answers.iter().map(|a| Segment::after(0, a.len())));
        let layout = Layout::new(&segments, &model.device());
        let packed = [&prompt[..], &answers.concat()].concat();
        let shared: Vec<f32> = model
            .output(model.hidden(&packed, &layout).unwrap())
            .into_data()
            .iter::<f32>()
            .collect();
        let (mut at, mut from) = (0, prompt.len());
        for answer in &answers {
            at += prompt.len();
            let want = &separate[at * width..(at + answer.len()) * width];
            close_logits(
                &name,
                &shared[from * width..(from + answer.len()) * width],
                want,
            );
            at += answer.len();
            from += answer.len();
        }
    }
}

#[test]
fn a_saved_model_loads_as_the_same_model() {
    for (name, dir, _) in tiny_models() {
        let model = load_model(&dir, &Device::flex()).unwrap();
        let out = tempfile::tempdir().unwrap();
        verl_backends::weights::save_pretrained(&model, out.path()).unwrap();
        let again = load_model(out.path(), &Device::flex()).unwrap();
        let row = vec![vec![1u32, 2, 3, 4]];
        assert_eq!(outputs(&model, &row), outputs(&again, &row), "{name}");
    }
}

fn edited_copy(
    from: &Path,
    edit: impl FnOnce(&mut Vec<(String, Vec<usize>, Vec<u8>)>),
) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    std::fs::copy(from.join("config.json"), out.path().join("config.json")).unwrap();
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<_> = file
        .iter()
        .map(|(n, v)| (n.to_string(), v.shape().to_vec(), v.data().to_vec()))
        .collect();
    edit(&mut tensors);
    let views = tensors.iter().map(|(n, s, d)| {
        (
            n.clone(),
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, s.clone(), d).unwrap(),
        )
    });
    safetensors::serialize_to_file(views, None, &out.path().join("model.safetensors")).unwrap();
    out
}

#[test]
fn every_fault_of_a_checkpoint_is_named_at_once() {
    let dir = crate::golden::reference().join("models/tiny-qwen2");
    let broken = edited_copy(&dir, |tensors| {
        tensors.retain(|(n, ..)| n != "model.layers.0.mlp.up_proj.weight");
        tensors.push(("stray.weight".into(), vec![1], vec![0; 4]));
        let norm = tensors
            .iter_mut()
            .find(|(n, ..)| n == "model.norm.weight")
            .unwrap();
        (norm.1, norm.2) = (vec![2], vec![0; 8]);
    });
    let error = load_model(broken.path(), &Device::flex())
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with(
            "missing: model.layers.0.mlp.up_proj.weight; misshapen: model.norm.weight is [2], expected [64]; not used: stray.weight"
        ),
        "{error}"
    );
}

fn sharded_copy() -> tempfile::TempDir {
    let dir = crate::golden::reference().join("models/tiny-qwen2-sharded-bf16");
    let out = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, out.path().join(path.file_name().unwrap())).unwrap();
    }
    out
}

#[test]
fn a_lost_or_cut_shard_is_an_error_and_a_stray_file_is_not_read() {
    let device = Device::flex();
    let lost = sharded_copy();
    std::fs::remove_file(lost.path().join("model-00002-of-00004.safetensors")).unwrap();
    let error = load_model(lost.path(), &device).unwrap_err().to_string();
    assert!(
        error.contains("model-00002-of-00004.safetensors") && error.contains("(holds model."),
        "{error}"
    );

    let cut = sharded_copy();
    let shard = cut.path().join("model-00001-of-00004.safetensors");
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &bytes[..bytes.len() - 1024]).unwrap();
    let error = load_model(cut.path(), &device).unwrap_err().to_string();
    assert!(error.contains("not a whole safetensors file"), "{error}");

    let stray = sharded_copy();
    std::fs::write(stray.path().join("other.safetensors"), b"rubbish").unwrap();
    load_model(stray.path(), &device).unwrap();
}

#[test]
fn a_tied_model_may_carry_a_copy_of_its_head() {
    let dir = crate::golden::reference().join("models/tiny-qwen2");
    let with_head = edited_copy(&dir, |tensors| {
        let embed = tensors
            .iter()
            .find(|(n, ..)| n == "model.embed_tokens.weight")
            .unwrap()
            .clone();
        tensors.push(("lm_head.weight".into(), embed.1, embed.2));
    });
    let model = load_model(with_head.path(), &Device::flex()).unwrap();
    assert!(model.config.tied());
}

#[test]
fn fresh_weights_depend_on_the_seed_alone() {
    let dir = crate::golden::reference().join("models/tiny-qwen3-moe");
    let config = Arc::new(ModelConfig::from_dir(&dir).unwrap());
    let row = [vec![1u32, 2, 3]];
    let make = |seed| outputs(&Model::random(config.clone(), seed, &Device::flex()), &row);
    assert_eq!(make(1), make(1));
    assert_ne!(make(1), make(2));
}
