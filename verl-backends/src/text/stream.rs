//! Text of ids as they come.

use verl_core::Result;
use verl_core::text::Tokenizer;
use verl_core::types::TokenId;

/// Decodes ids one at a time. Text is held back while it ends inside a
/// character; what has been returned, put together, equals the decoding of
/// all ids.
#[derive(Debug)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a dyn Tokenizer,
    skip_special: bool,
    ids: Vec<TokenId>,
    returned: usize,
}

impl<'a> StreamDecoder<'a> {
    /// A decoder at the start of a text.
    pub fn new(tokenizer: &'a dyn Tokenizer, skip_special: bool) -> Self {
        StreamDecoder {
            tokenizer,
            skip_special,
            ids: Vec::new(),
            returned: 0,
        }
    }

    /// Takes the next id; returns the text that has become certain.
    ///
    /// # Errors
    /// When the tokenizer does not know the id.
    pub fn push(&mut self, id: TokenId) -> Result<String> {
        self.ids.push(id);
        let text = self.tokenizer.decode(&self.ids, self.skip_special)?;
        // A replacement character at the end may be the start of a character
        // whose other bytes are still to come.
        let certain = text.trim_end_matches('\u{FFFD}');
        Ok(self.advance(certain))
    }

    /// Ends the text; returns what was held back.
    ///
    /// # Errors
    /// As [`StreamDecoder::push`].
    pub fn finish(mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.ids, self.skip_special)?;
        Ok(self.advance(&text))
    }

    fn advance(&mut self, text: &str) -> String {
        let new = text.get(self.returned..).unwrap_or_default().to_string();
        self.returned += new.len();
        new
    }
}
