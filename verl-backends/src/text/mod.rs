//! Hugging Face tokenizers and chat templates.

mod guard;
mod pyjson;
mod stream;
mod template;
mod tokenizer;

pub use stream::StreamDecoder;
pub use template::ChatTemplate;
pub use tokenizer::HfTokenizer;
