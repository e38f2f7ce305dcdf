//! Samples answers from a model folder.
//!
//! ```text
//! cargo run --release --example generate -- --model DIR --prompt "What is 7 + 5?"
//! cargo run --release --example generate -- --model DIR --prompts FILE.jsonl --json
//! ```
//! `FILE.jsonl` has one object per line with the field `prompt`, text or chat
//! messages. `--json` prints one object per answer: ids, text, per-token
//! log-probs and the finish reason.

use clap::Parser;
use std::path::PathBuf;
use std::sync::Arc;
use verl::RolloutEngine;
use verl::backends::burn::tensor::Device;
use verl::backends::generate::{GeneratorOptions, NativeGenerator};
use verl::backends::text::HfTokenizer;
use verl::backends::weights::{load_adapter, load_model};
use verl::core::data::PromptFormat;
use verl::core::rollout::{Rollout, RolloutRequest, SamplingParams, sample_seed};
use verl::core::text::{ChatOptions, Message, Tokenizer};
use verl::core::types::GroupId;

/// Samples answers from a model folder.
#[derive(Parser)]
struct Args {
    /// Hugging Face model folder.
    #[arg(long)]
    model: PathBuf,
    /// Adapter on the model, a folder in the form of `peft`.
    #[arg(long)]
    adapter: Option<PathBuf>,
    /// A prompt.
    #[arg(long, required_unless_present = "prompts", conflicts_with = "prompts")]
    #[arg(allow_hyphen_values = true)]
    prompt: Option<String>,
    /// System message before a prompt that has none.
    #[arg(long, allow_hyphen_values = true)]
    system: Option<String>,
    /// A JSONL file of prompts.
    #[arg(long)]
    prompts: Option<PathBuf>,
    /// Text to continue as it is, without the chat format.
    #[arg(long)]
    raw: bool,
    /// Answers per prompt.
    #[arg(long, default_value_t = 1)]
    n: usize,
    /// 0 is greedy.
    #[arg(long, default_value_t = 1.0)]
    temperature: f32,
    /// Keep the k most likely tokens; 0 or -1 keeps all.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..))]
    top_k: i64,
    /// Keep the most likely tokens up to this probability.
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Drop tokens below this share of the most likely one.
    #[arg(long, default_value_t = 0.0)]
    min_p: f32,
    /// Most tokens per answer.
    #[arg(long, default_value_t = 256)]
    max_tokens: usize,
    /// Text that ends an answer; may be given several times.
    #[arg(long, allow_hyphen_values = true)]
    stop: Vec<String>,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON objects.
    #[arg(long)]
    json: bool,
}

fn main() -> verl::Result<()> {
    tracing_subscriber::fmt().with_target(false).init();
    let args = Args::parse();
    let tokenizer = Arc::new(HfTokenizer::from_dir(&args.model)?);
    let options = GeneratorOptions {
        vocab: Some(tokenizer.vocab_size()),
        stop_ids: tokenizer.stop_ids().to_vec(),
        tokenizer: Some(tokenizer.clone()),
        ..GeneratorOptions::default()
    };
    let mut model = load_model(&args.model, &Device::flex())?;
    if let Some(adapter) = &args.adapter {
        load_adapter(&mut model, adapter)?;
    }
    let mut engine = NativeGenerator::new(model, options)?;
    let mut answers: Vec<Rollout> = Vec::new();
    engine.generate(requests(&args, &tokenizer)?, &mut |rollout| {
        answers.push(rollout);
        Ok(())
    })?;
    answers.sort_by_key(|a| (a.group, a.sample));
    answers
        .iter()
        .try_for_each(|answer| print(answer, &tokenizer, args.json))
}

fn requests(args: &Args, tokenizer: &HfTokenizer) -> verl::Result<Vec<RolloutRequest>> {
    let mut conversations: Vec<Vec<Message>> = match (&args.prompt, &args.prompts) {
        (Some(prompt), _) => vec![vec![Message::new("user", prompt)]],
        (None, Some(file)) => PromptFormat::default()
            .read(&[file], false)?
            .rows
            .into_iter()
            .map(|r| r.messages)
            .collect(),
        (None, None) => Vec::new(),
    };
    if let Some(system) = &args.system {
        for messages in &mut conversations {
            if messages.first().is_none_or(|m| m.role != "system") {
                messages.insert(0, Message::new("system", system));
            }
        }
    }
    let params = Arc::new(SamplingParams {
        temperature: args.temperature,
        top_k: usize::try_from(args.top_k).unwrap_or(0),
        top_p: args.top_p,
        min_p: args.min_p,
        max_tokens: args.max_tokens,
        stop: args.stop.clone(),
        ..SamplingParams::default()
    });
    let mut requests = Vec::new();
    for (group, messages) in conversations.iter().enumerate() {
        let ids = match args.raw {
            true => tokenizer.encode(
                &messages
                    .iter()
                    .map(|m| m.content.as_str())
                    .collect::<Vec<_>>()
                    .join("\n"),
            )?,
            false => tokenizer.encode_chat(messages, &ChatOptions::default())?,
        };
        let prompt: Arc<[u32]> = ids.into();
        requests.extend((0..args.n).map(|sample| RolloutRequest {
            group: GroupId(group as u64),
            sample,
            prompt: prompt.clone(),
            seed: sample_seed(args.seed, 0, group as u64, sample as u64),
            params: params.clone(),
        }));
    }
    Ok(requests)
}

fn print(answer: &Rollout, tokenizer: &HfTokenizer, json: bool) -> verl::Result<()> {
    let text = tokenizer.decode(&answer.tokens, true)?;
    if json {
        let object = serde_json::json!({
            "prompt": answer.group.0,
            "sample": answer.sample,
            "ids": answer.tokens,
            "text": text,
            "log_probs": answer.log_probs,
            "finish_reason": answer.finish,
        });
        println!("{object}");
    } else {
        println!("{text}\n");
    }
    Ok(())
}
