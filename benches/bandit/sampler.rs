//! Sampling from a table of logits, and its tokens as letters.

use super::table::{row, softmax, values};
use super::{MAX_TOKENS, STOP, VOCAB, text};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use verl::core::rollout::{Rollout, RolloutRequest, SamplingParams, WeightTensor, Weights};
use verl::core::text::{ChatOptions, Message, Tokenizer};
use verl::core::types::{FinishReason, TokenId};
use verl::{Error, Result, RolloutEngine};

/// Draws answers from the rows of a table.
#[derive(Debug, Default)]
pub struct TableSampler {
    logits: Vec<f32>,
    version: u64,
}

impl TableSampler {
    fn answer(&self, request: RolloutRequest) -> Result<Rollout> {
        let params = &*request.params;
        check(params)?;
        let greedy = params.temperature == 0.0;
        let table = softmax(&self.logits, if greedy { 1.0 } else { params.temperature });
        let mut rng = ChaCha8Rng::seed_from_u64(request.seed);
        let (mut tokens, mut log_probs) = (Vec::new(), Vec::new());
        let mut finish = FinishReason::Length;
        while tokens.len() < params.max_tokens {
            let probabilities = &table[row(&request.prompt, tokens.len())];
            let token = match greedy {
                true => likeliest(probabilities),
                false => draw(probabilities, rng.random()),
            };
            tokens.push(token as TokenId);
            let log_prob = if greedy {
                0.0
            } else {
                probabilities[token].ln()
            };
            log_probs.push(log_prob as f32);
            if token == STOP as usize {
                finish = FinishReason::Stop;
                break;
            }
        }
        Ok(Rollout {
            group: request.group,
            sample: request.sample,
            tokens,
            log_probs,
            untempered_log_probs: Vec::new(),
            finish,
            weight_version: self.version,
        })
    }
}

/// The table knows temperatures and nothing else.
fn check(params: &SamplingParams) -> Result<()> {
    let filtered = params.top_k > 0 || params.top_p < 1.0 || params.min_p > 0.0;
    match filtered || params.max_tokens > MAX_TOKENS || params.untempered_log_probs {
        true => Err(Error::invalid(format!(
            "a table draws at most {MAX_TOKENS} tokens, without filters"
        ))),
        false => Ok(()),
    }
}

fn likeliest(probabilities: &[f64; VOCAB]) -> usize {
    let best = (0..VOCAB).max_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    best.unwrap_or(0)
}

/// The token at which the cumulated probability passes `uniform`.
fn draw(probabilities: &[f64; VOCAB], uniform: f64) -> usize {
    let mut left = uniform;
    let passes = |p: &f64| {
        left -= p;
        left < 0.0
    };
    let at = probabilities.iter().position(passes);
    at.unwrap_or(VOCAB - 1)
}

impl RolloutEngine for TableSampler {
    fn generate(
        &mut self,
        requests: Vec<RolloutRequest>,
        on_finished: &mut dyn FnMut(Rollout) -> Result<()>,
    ) -> Result<()> {
        let answers = requests.into_iter().map(|request| self.answer(request));
        let answers = answers.collect::<Result<Vec<_>>>()?;
        answers.into_iter().try_for_each(on_finished)
    }

    fn sync_weights(&mut self, weights: &Weights) -> Result<()> {
        let Some((_, WeightTensor::Matrix(table))) = weights.tensors.first() else {
            return Err(Error::invalid("the weights hold no table"));
        };
        (self.logits, self.version) = (values(table), weights.version);
        Ok(())
    }
}

/// Letters as tokens: `a` is 1, `b` 2, and so on; 0 ends an answer.
#[derive(Debug)]
pub struct Alphabet;

impl Tokenizer for Alphabet {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>> {
        let id = |c: char| match c {
            'a'..='d' => Ok(c as TokenId - '`' as TokenId),
            _ => Err(Error::invalid(format!("`{c}` is not in the alphabet"))),
        };
        text.chars().map(id).collect()
    }

    fn decode(&self, ids: &[TokenId], skip_special: bool) -> Result<String> {
        let stopped = ids.last() == Some(&STOP) && !skip_special;
        Ok(text(ids) + if stopped { "." } else { "" })
    }

    fn encode_chat(&self, messages: &[Message], _: &ChatOptions) -> Result<Vec<TokenId>> {
        let contents: String = messages.iter().map(|m| m.content.as_str()).collect();
        self.encode(&contents)
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn stop_ids(&self) -> &[TokenId] {
        &[STOP]
    }
}
