//! A contextual bandit whose actions are short token sequences: the smallest
//! task on which every algorithm must learn.
//!
//! A context is a prompt of one token. An answer is up to [`MAX_TOKENS`]
//! letters, ended by a stop token; its reward is the share of positions at
//! which it agrees with the context's word. The policy is a table of logits, a
//! row for each context and position, so that a run takes a fraction of a
//! second and its expected reward is known exactly.

mod critic;
mod policy;
mod sampler;
mod table;

pub use critic::TableCritic;
pub use policy::{FrozenTable, TablePolicy};
pub use sampler::{Alphabet, TableSampler};

use serde_json::json;
use std::sync::Arc;
use verl::algos::Catalogue;
use verl::core::registry::Settings;
use verl::core::reward::{RewardInput, Score};
use verl::core::rollout::SamplingParams;
use verl::core::trainer::{EvalSettings, Prompt};
use verl::core::types::TokenId;
use verl::{Critic, Parts, Policy, Result, TrainSettings, Trainer, reward_fn};

/// The word that each context asks for.
pub const WORDS: [&str; 4] = ["a", "bc", "dab", "cd"];
/// Most tokens of an answer.
pub const MAX_TOKENS: usize = 4;
/// Tokens: the stop token, then letters.
pub const VOCAB: usize = 5;
/// The token that ends an answer.
pub const STOP: TokenId = 0;
/// Rate of AdamW on the policy's logits.
const LEARNING_RATE: f64 = 0.1;
/// Rate of AdamW on the critic's values.
const CRITIC_LEARNING_RATE: f64 = 0.2;

/// Text of answer tokens, the stop token left out.
pub fn text(tokens: &[TokenId]) -> String {
    let letters = tokens.iter().filter(|t| **t != STOP);
    letters.map(|t| char::from(b'`' + *t as u8)).collect()
}

/// Share of positions at which two words agree.
///
/// # Example
/// ```
/// use verl_benches::bandit::agreement;
/// assert_eq!((agreement("dab", "dab"), agreement("dab", "d")), (1.0, 1.0 / 3.0));
/// assert_eq!((agreement("a", "ab"), agreement("a", "")), (0.5, 0.0));
/// ```
pub fn agreement(word: &str, answer: &str) -> f32 {
    let equal = word.chars().zip(answer.chars()).filter(|(a, b)| a == b);
    equal.count() as f32 / word.len().max(answer.len()) as f32
}

fn score(input: &RewardInput<'_>) -> std::result::Result<Score, &'static str> {
    let word = input.answer.ok_or("a context without a word")?;
    let answer = input.response;
    let equal = word.chars().zip(answer.chars()).filter(|(a, b)| a == b);
    let letters = equal.count() as f32 / word.len() as f32;
    let length = f32::from(u8::from(word.len() == answer.len()));
    Ok(Score::new(agreement(word, answer))
        .with_part("letters", letters)
        .with_part("length", length))
}

/// One run: an algorithm with its options, a seed, a number of steps.
#[derive(Debug, Clone)]
pub struct Bandit {
    /// Name of the algorithm.
    pub algorithm: String,
    /// Its options.
    pub options: Settings,
    /// Seed of the run.
    pub seed: u64,
    /// Policy updates; warm-up of a critic comes on top.
    pub steps: u64,
}

impl Bandit {
    /// A run of an algorithm with its defaults. GDPO has none for the parts of
    /// the reward and gets those of this task.
    pub fn new(algorithm: &str, seed: u64, steps: u64) -> Self {
        let mut options = Settings::default();
        if algorithm == "gdpo" {
            let keys = json!(["letters", "length"]);
            options.0.insert("gdpo_reward_keys".into(), keys);
        }
        Bandit {
            algorithm: algorithm.into(),
            options,
            seed,
            steps,
        }
    }

    /// Trains, and returns the policy's expected reward at the end.
    ///
    /// # Errors
    /// When the algorithm is unknown or the run fails.
    pub fn train(&self, catalogue: &Catalogue) -> Result<f64> {
        let parts = self.parts(catalogue)?;
        let warmup = parts.algorithm.critic_warmup().min(5);
        let settings = TrainSettings {
            seed: self.seed,
            total_steps: self.steps + warmup,
            critic_warmup: Some(warmup),
            ..settings()
        };
        let mut trainer = Trainer::new(parts, settings)?;
        trainer.fit()?;
        expected_reward(trainer.policy())
    }

    fn parts(&self, catalogue: &Catalogue) -> Result<Parts> {
        let algorithm = catalogue.build(&self.algorithm, &self.options)?;
        let policy = || Box::new(TablePolicy::new(LEARNING_RATE)) as Box<dyn Policy>;
        let critic = || Box::new(TableCritic::new(CRITIC_LEARNING_RATE)) as Box<dyn Critic>;
        Ok(Parts {
            policy: policy(),
            critic: algorithm.requirements().critic.then(critic),
            reward_model: algorithm.reward_model().map(|_| policy()),
            algorithm,
            engine: Box::new(TableSampler::default()),
            tokenizer: Arc::new(Alphabet),
            reward: Arc::new(reward_fn("agreement", score)),
            prompts: (0..WORDS.len()).map(prompt).collect(),
            eval_prompts: Vec::new(),
            trackers: Vec::new(),
        })
    }
}

/// Two passes over each batch, so that ratios leave 1.
fn settings() -> TrainSettings {
    TrainSettings {
        prompts_per_step: WORDS.len(),
        samples_per_prompt: 8,
        epochs: 2,
        sampling: SamplingParams {
            max_tokens: MAX_TOKENS,
            ..Default::default()
        },
        eval: EvalSettings {
            every: 0,
            before: false,
            sampling: SamplingParams::greedy(MAX_TOKENS),
            ..Default::default()
        },
        log_completions: 0,
        ..Default::default()
    }
}

fn prompt(context: usize) -> Prompt {
    Prompt {
        ids: Arc::from([context as TokenId]),
        text: format!("context {context}").into(),
        answer: Some(WORDS[context].into()),
        row: Arc::default(),
    }
}

/// The mean over contexts of a policy's expected reward, summed over all
/// answers there are.
///
/// # Errors
/// When the policy cannot score.
pub fn expected_reward(policy: &dyn Policy) -> Result<f64> {
    let table = table::probabilities(&policy.weights())?;
    let reward = |context: usize| continuations(&table, context, &mut Vec::new());
    let total: f64 = (0..WORDS.len()).map(reward).sum();
    Ok(total / WORDS.len() as f64)
}

/// Expected reward of a context's answers that begin with the given tokens,
/// times the probability of going on from there.
fn continuations(table: &[[f64; VOCAB]], context: usize, answer: &mut Vec<TokenId>) -> f64 {
    if answer.len() == MAX_TOKENS || answer.last() == Some(&STOP) {
        return f64::from(agreement(WORDS[context], &text(answer)));
    }
    let row = table[context * MAX_TOKENS + answer.len()];
    let mut reward = 0.0;
    for (token, probability) in row.iter().enumerate() {
        answer.push(token as TokenId);
        reward += probability * continuations(table, context, answer);
        answer.pop();
    }
    reward
}
