//! Log-probs and entropies of given token sequences.
//!
//! ```text
//! echo '{"sequences": [[1, 2, 3], [4, 5]]}' > ids.json
//! cargo run --release --example logprobs -- --model DIR --input ids.json
//! ```
//! Prints `{"log_probs": [[..]], "entropies": [[..]]}`: for each sequence, one
//! value for each token after the first.

use clap::Parser;
use std::path::PathBuf;
use verl::backends::burn::tensor::Device;
use verl::backends::engine::{CausalPolicy, EngineOptions};
use verl::backends::optim::{AdamW, AdamWConfig};
use verl::backends::weights::load_model;
use verl::core::policy::{LogProbModel, ScoreOptions, SequenceRef};
use verl::{Error, Result};

/// Prints log-probs and entropies of token sequences as JSON.
#[derive(Parser)]
struct Args {
    /// Hugging Face model folder.
    #[arg(long)]
    model: PathBuf,
    /// JSON file with the sequences.
    #[arg(long)]
    input: PathBuf,
    /// Divides the logits.
    #[arg(long, default_value_t = 1.0)]
    temperature: f32,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    sequences: Vec<Vec<u32>>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let text = std::fs::read_to_string(&args.input).map_err(Error::io(&args.input))?;
    let input: Input = serde_json::from_str(&text)
        .map_err(|e| Error::malformed_at(&args.input, e.line(), e.to_string()))?;
    let model = load_model(&args.model, &Device::flex())?;
    let policy = CausalPolicy::new(
        model,
        Box::new(AdamW::new(AdamWConfig::default())),
        EngineOptions::default(),
    )?;
    if let Some(i) = input.sequences.iter().position(Vec::is_empty) {
        return Err(Error::malformed(
            &args.input,
            format!("sequence {i} is empty"),
        ));
    }
    let sequences: Vec<SequenceRef<'_>> = input
        .sequences
        .iter()
        .map(|s| SequenceRef {
            prompt: &s[..1],
            response: &s[1..],
        })
        .collect();
    let scores = policy.log_probs(
        &sequences,
        ScoreOptions {
            temperature: args.temperature,
            entropy: true,
            ..Default::default()
        },
    )?;
    let (log_probs, entropies): (Vec<_>, Vec<_>) =
        scores.into_iter().map(|s| (s.log_probs, s.entropy)).unzip();
    println!(
        "{}",
        serde_json::json!({ "log_probs": log_probs, "entropies": entropies })
    );
    Ok(())
}
