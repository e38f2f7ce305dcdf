//! Sequences become packed tokens, and prompts that they share are packed once.

use crate::model::{Layout, Segment};
use burn::tensor::Device;
use verl_core::policy::SequenceRef;
use verl_core::types::TokenId;
use verl_core::{Error, Result};

/// Packed sequences and where their responses are predicted.
#[derive(Debug)]
pub(super) struct Packed {
    /// The packed ids.
    pub(super) ids: Vec<TokenId>,
    /// Their arrangement.
    pub(super) layout: Layout,
    /// For each response token, sequence after sequence, the packed row whose
    /// hidden state predicts it.
    pub(super) rows: Vec<usize>,
    /// The response tokens themselves.
    pub(super) targets: Vec<TokenId>,
}

impl Packed {
    /// Packs sequences. Neighbours with equal prompts share its tokens. The
    /// last token of a response predicts nothing and is left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty prompt.
    pub(super) fn new(sequences: &[SequenceRef<'_>], device: &Device) -> Result<Self> {
        let mut ids: Vec<TokenId> = Vec::new();
        let mut segments: Vec<Segment> = Vec::new();
        let (mut rows, mut targets) = (Vec::new(), Vec::new());
        // The prompt in force: its ids, its segment, and the row of its last token.
        let mut current: Option<(&[TokenId], usize, usize)> = None;
        for (i, sequence) in sequences.iter().enumerate() {
            if sequence.prompt.is_empty() {
                return Err(Error::invalid(format!("sequence {i} has an empty prompt")));
            }
            let (segment, last) = match current.filter(|(prompt, ..)| *prompt == sequence.prompt) {
                Some((_, segment, last)) => (segment, last),
                None => {
                    ids.extend(sequence.prompt);
                    segments.push(Segment::whole(sequence.prompt.len()));
                    current = Some((sequence.prompt, segments.len() - 1, ids.len() - 1));
                    (segments.len() - 1, ids.len() - 1)
                }
            };
            let Some((_, inputs)) = sequence.response.split_last() else {
                continue;
            };
            rows.push(last);
            rows.extend(ids.len()..ids.len() + inputs.len());
            targets.extend(sequence.response);
            if !inputs.is_empty() {
                ids.extend(inputs);
                segments.push(Segment::after(segment, inputs.len()));
            }
        }
        Ok(Packed {
            ids,
            layout: Layout::new(&segments, device),
            rows,
            targets,
        })
    }
}

/// Splits per-token values into one row per response.
pub(super) fn split_rows(values: &[f32], sequences: &[SequenceRef<'_>]) -> Vec<Vec<f32>> {
    let mut rest = values;
    let take = |s: &SequenceRef<'_>| {
        let (row, tail) = rest.split_at(s.response.len().min(rest.len()));
        rest = tail;
        row.to_vec()
    };
    sequences.iter().map(take).collect()
}

/// Cuts sequences, in order, into chunks of at most `budget` tokens (a longer
/// sequence stands alone). Neighbours with one prompt count it once.
pub(super) fn chunks<'s, 'a>(
    sequences: &'s [SequenceRef<'a>],
    budget: usize,
) -> Vec<&'s [SequenceRef<'a>]> {
    let mut chunks = Vec::new();
    let (mut start, mut tokens) = (0, 0);
    for (i, sequence) in sequences.iter().enumerate() {
        let shares = i > start && sequences[i - 1].prompt == sequence.prompt;
        let cost = sequence.response.len() + if shares { 0 } else { sequence.prompt.len() };
        if i > start && tokens + cost > budget {
            chunks.push(&sequences[start..i]);
            (start, tokens) = (i, sequence.response.len() + sequence.prompt.len());
        } else {
            tokens += cost;
        }
    }
    if start < sequences.len() {
        chunks.push(&sequences[start..]);
    }
    chunks
}
