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
    /// Packs sequences. Neighbours with equal prompts share its tokens when
    /// that saves at least `share` of them: an attention rectangle of its own
    /// costs more than a few tokens. The last token of a response predicts
    /// nothing and is left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty prompt.
    pub(super) fn new(
        sequences: &[SequenceRef<'_>],
        share: usize,
        device: &Device,
    ) -> Result<Self> {
        if let Some(i) = sequences.iter().position(|s| s.prompt.is_empty()) {
            return Err(Error::invalid(format!("sequence {i} has an empty prompt")));
        }
        let mut packer = Packer::default();
        for group in sequences.chunk_by(|a, b| a.prompt == b.prompt) {
            match group[0].prompt.len() * (group.len() - 1) >= share.max(1) {
                true => packer.add_shared(group),
                false => group.iter().for_each(|s| packer.add_whole(s)),
            }
        }
        let Packer {
            ids,
            segments,
            rows,
            targets,
        } = packer;
        Ok(Packed {
            ids,
            layout: Layout::new(&segments, device),
            rows,
            targets,
        })
    }
}

#[derive(Default)]
struct Packer {
    ids: Vec<TokenId>,
    segments: Vec<Segment>,
    rows: Vec<usize>,
    targets: Vec<TokenId>,
}

impl Packer {
    /// A sequence by itself.
    fn add_whole(&mut self, sequence: &SequenceRef<'_>) {
        let Some((_, inputs)) = sequence.response.split_last() else {
            return;
        };
        self.ids.extend(sequence.prompt);
        let last = self.ids.len() - 1;
        self.ids.extend(inputs);
        self.segments
            .push(Segment::whole(sequence.prompt.len() + inputs.len()));
        self.rows.extend(last..=last + inputs.len());
        self.targets.extend(sequence.response);
    }

    /// A prompt once, and the responses after it.
    fn add_shared(&mut self, group: &[SequenceRef<'_>]) {
        self.ids.extend(group[0].prompt);
        self.segments.push(Segment::whole(group[0].prompt.len()));
        let (prompt, last) = (self.segments.len() - 1, self.ids.len() - 1);
        for sequence in group {
            let Some((_, inputs)) = sequence.response.split_last() else {
                continue;
            };
            self.rows.push(last);
            self.rows
                .extend(self.ids.len()..self.ids.len() + inputs.len());
            self.targets.extend(sequence.response);
            if !inputs.is_empty() {
                self.ids.extend(inputs);
                self.segments.push(Segment::after(prompt, inputs.len()));
            }
        }
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
