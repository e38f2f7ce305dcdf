//! The task: sums of two numbers, written character by character.

use std::sync::Arc;
use verl::core::text::{ChatOptions, Message, Tokenizer};
use verl::core::trainer::Prompt;

/// Every question with addends below this.
const LIMIT: u64 = 50;

/// A sum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum(pub(crate) u64, pub(crate) u64);

impl Sum {
    pub(crate) fn question(self) -> String {
        format!("{}+{}=", self.0, self.1)
    }

    pub(crate) fn answer(self) -> u64 {
        self.0 + self.1
    }

    /// One question in five is held out: it is never trained on.
    fn held_out(self) -> bool {
        verl::core::rollout::sample_seed(0, self.0, self.1, 0).is_multiple_of(5)
    }
}

/// The questions to train on, and those held out.
pub(crate) fn questions() -> (Vec<Sum>, Vec<Sum>) {
    let all = (0..LIMIT).flat_map(|a| (0..LIMIT).map(move |b| Sum(a, b)));
    all.partition(|sum| !sum.held_out())
}

/// A question as the trainer takes it.
pub(crate) fn prompt(sum: Sum, tokenizer: &dyn Tokenizer) -> verl::Result<Prompt> {
    let question = sum.question();
    let ids = tokenizer.encode_chat(&[Message::new("user", &question)], &ChatOptions::default())?;
    Ok(Prompt {
        ids: ids.into(),
        text: Arc::from(question),
        answer: Some(Arc::from(sum.answer().to_string())),
        row: Arc::default(),
    })
}
