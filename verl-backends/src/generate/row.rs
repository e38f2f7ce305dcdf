//! One answer in the making.

use super::sampler::{Draw, Sampler};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use verl_core::Result;
use verl_core::rollout::{Rollout, RolloutRequest};
use verl_core::text::Tokenizer;
use verl_core::types::{FinishReason, TokenId};

/// A request with what has been sampled for it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) request: RolloutRequest,
    sampler: Sampler,
    rng: ChaCha8Rng,
    tokens: Vec<TokenId>,
    log_probs: Vec<f32>,
    untempered: Vec<f32>,
    pub(super) finish: Option<FinishReason>,
    handed_over: bool,
}

impl Row {
    pub(super) fn new(request: RolloutRequest) -> Self {
        Row {
            sampler: Sampler::from(&*request.params),
            rng: ChaCha8Rng::seed_from_u64(request.seed),
            tokens: Vec::new(),
            log_probs: Vec::new(),
            untempered: Vec::new(),
            finish: None,
            handed_over: false,
            request,
        }
    }

    /// Tokens that a cache holds once the newest one has been fed: the prompt
    /// and all sampled tokens but the newest.
    pub(super) fn cached(&self) -> usize {
        self.request.prompt.len() + self.tokens.len().saturating_sub(1)
    }

    /// The newest token.
    pub(super) fn newest(&self) -> TokenId {
        self.tokens.last().copied().unwrap_or_default()
    }

    /// Draws the next token and notes whether it ends the answer.
    pub(super) fn draw(
        &mut self,
        logits: &[f32],
        eos: &[TokenId],
        tokenizer: Option<&Arc<dyn Tokenizer>>,
    ) -> Result<()> {
        let Draw {
            token,
            log_prob,
            untempered,
        } = self.sampler.draw(logits, &mut self.rng);
        self.tokens.push(token);
        self.log_probs.push(log_prob);
        self.untempered.push(untempered);
        let params = &self.request.params;
        let stops =
            (!params.ignore_eos && eos.contains(&token)) || params.stop_ids.contains(&token);
        if stops || self.ends_with_stop_string(tokenizer)? {
            self.finish = Some(FinishReason::Stop);
        } else if self.tokens.len() >= params.max_tokens {
            self.finish = Some(FinishReason::Length);
        }
        Ok(())
    }

    /// Whether a stop string appears in the newest text, however it is cut
    /// into tokens. Every token adds at least one byte, or is special and adds
    /// none; so the window is widened until its text is long enough.
    fn ends_with_stop_string(&self, tokenizer: Option<&Arc<dyn Tokenizer>>) -> Result<bool> {
        let stop = &self.request.params.stop;
        let (Some(tokenizer), Some(longest)) = (tokenizer, stop.iter().map(String::len).max())
        else {
            return Ok(false);
        };
        let mut window = longest + 4;
        loop {
            let start = self.tokens.len().saturating_sub(window);
            let text = tokenizer.decode(&self.tokens[start..], true)?;
            if stop.iter().any(|s| text.contains(s.as_str())) {
                return Ok(true);
            }
            if start == 0 || text.len() >= 2 * longest {
                return Ok(false);
            }
            window *= 2;
        }
    }

    /// The answer, once, when it is finished.
    pub(super) fn take_finished(&mut self, weight_version: u64) -> Option<Rollout> {
        let finish = self.finish.filter(|_| !self.handed_over)?;
        self.handed_over = true;
        let wanted = self.request.params.untempered_log_probs;
        Some(Rollout {
            group: self.request.group,
            sample: self.request.sample,
            tokens: self.tokens.clone(),
            log_probs: std::mem::take(&mut self.log_probs),
            untempered_log_probs: if wanted {
                std::mem::take(&mut self.untempered)
            } else {
                Vec::new()
            },
            finish,
            weight_version,
        })
    }
}
