//! The token stream of a multi-turn episode.

use super::TokenId;

/// The turns of an episode as one stream of tokens with a response mask.
///
/// Tokens go in and come out as they are: what the policy sampled is never
/// decoded and encoded again, since that could give other tokens than the ones
/// whose probabilities are known.
///
/// The response is everything behind the prompt. Its mask is true where the
/// policy sampled the token, and false for what the environment or the chat
/// template put in between.
///
/// # Example
/// ```
/// use verl_core::types::Episode;
///
/// let mut episode = Episode::new();
/// episode.environment(&[1, 2]); // the prompt
/// episode.policy(&[7, 8]);
/// episode.environment(&[3]); // a tool's answer
/// episode.policy(&[9]);
/// assert_eq!(episode.prompt(), [1, 2]);
/// assert_eq!(episode.response(), [7, 8, 3, 9]);
/// assert_eq!(episode.response_mask(), [true, true, false, true]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Episode {
    tokens: Vec<TokenId>,
    sampled: Vec<bool>,
    prompt: Option<usize>,
}

impl Episode {
    /// An episode without turns.
    pub fn new() -> Self {
        Episode::default()
    }

    /// Appends a turn of the policy. What came before the first one is the
    /// prompt, also when this turn is empty.
    pub fn policy(&mut self, tokens: &[TokenId]) {
        self.prompt.get_or_insert(self.tokens.len());
        self.push(tokens, true);
    }

    /// Appends tokens that the policy did not sample.
    pub fn environment(&mut self, tokens: &[TokenId]) {
        self.push(tokens, false);
    }

    /// Every token so far: what the next turn of the policy continues.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// What came before the first turn of the policy.
    pub fn prompt(&self) -> &[TokenId] {
        &self.tokens[..self.prompt_length()]
    }

    /// What came behind the prompt.
    pub fn response(&self) -> &[TokenId] {
        &self.tokens[self.prompt_length()..]
    }

    /// For each token of the response, whether the policy sampled it.
    pub fn response_mask(&self) -> &[bool] {
        &self.sampled[self.prompt_length()..]
    }

    fn prompt_length(&self) -> usize {
        self.prompt.unwrap_or(self.tokens.len())
    }

    fn push(&mut self, tokens: &[TokenId], sampled: bool) {
        self.tokens.extend_from_slice(tokens);
        self.sampled.resize(self.tokens.len(), sampled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::{Path, PathBuf};

    fn cases(file: &str) -> Vec<Value> {
        let root = match std::env::var_os("VERL_REFERENCE_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference"),
        };
        let text = std::fs::read_to_string(root.join("golden/chat").join(file)).unwrap();
        let file: Value = serde_json::from_str(&text).unwrap();
        file["cases"].as_array().unwrap().clone()
    }

    fn ids(value: &Value) -> Vec<TokenId> {
        let ids = value.as_array().unwrap();
        ids.iter().map(|id| id.as_u64().unwrap() as u32).collect()
    }

    #[test]
    fn streams_and_masks_are_the_references() {
        for case in ["multiturn-qwen2.5.json", "multiturn-qwen3.json"]
            .into_iter()
            .flat_map(cases)
        {
            let (desc, outputs) = (&case["desc"], &case["outputs"]);
            let mut episode = Episode::new();
            for segment in outputs["segments"].as_array().unwrap() {
                match segment["kind"].as_str().unwrap() {
                    "generated" => episode.policy(&ids(&segment["ids"])),
                    _ => episode.environment(&ids(&segment["ids"])),
                }
            }
            let mask: Vec<_> = episode
                .response_mask()
                .iter()
                .map(|m| u32::from(*m))
                .collect();
            assert_eq!(episode.prompt(), ids(&outputs["prompt_ids"]), "{desc}");
            assert_eq!(episode.response(), ids(&outputs["response_ids"]), "{desc}");
            assert_eq!(mask, ids(&outputs["response_mask"]), "{desc}");
            // Every sampled id stands in the stream as it was sampled.
            let rounds = case["inputs"]["rounds"].as_array().unwrap();
            let sampled: Vec<_> = rounds
                .iter()
                .flat_map(|r| ids(&r["generated_ids"]))
                .collect();
            let kept = episode.response().iter().zip(episode.response_mask());
            let kept: Vec<_> = kept.filter(|(_, m)| **m).map(|(id, _)| *id).collect();
            assert_eq!(kept, sampled, "{desc}");
        }
    }

    #[test]
    fn an_episode_without_an_answer_is_all_prompt() {
        let mut episode = Episode::new();
        episode.environment(&[1, 2]);
        assert_eq!((episode.prompt().len(), episode.response().len()), (2, 0));
        episode.policy(&[]);
        episode.environment(&[3]);
        assert_eq!(episode.prompt(), [1, 2]);
        assert_eq!(episode.response_mask(), [false]);
    }
}
