//! The critic: a decoder with one score per token, in training.

use super::pack::{Packed, chunks, split_rows};
use super::pass::Pass;
use super::state::{EngineOptions, State};

use crate::model::{Head, HeadKind, Linear, Model};
use burn::tensor::{IndexingUpdateOp, Tensor, TensorData};
use std::path::Path;
use std::sync::Arc;
use verl_core::algorithm::{ValueInput, ValueObjective};
use verl_core::optimizer::Optimizer;
use verl_core::policy::{Critic, MetricSum, SequenceRef, Trainable, UpdateReport};
use verl_core::types::Trajectory;
use verl_core::{Error, Result};

/// A value model with its optimizer.
#[derive(Debug)]
pub struct ValueCritic {
    state: State,
}

impl ValueCritic {
    /// Puts a value model into training. A causal model gets a fresh value
    /// head of zeros, so that the first values are 0.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the model scores whole sequences.
    pub fn new(
        model: Model,
        optimizer: Box<dyn Optimizer>,
        options: EngineOptions,
    ) -> Result<Self> {
        let model = match model.config.head {
            HeadKind::TokenScore => model,
            HeadKind::CausalLm { .. } => with_value_head(model),
            HeadKind::SequenceScore => {
                let message =
                    "a critic needs one value per token; this model scores whole sequences";
                return Err(Error::Unsupported(message.into()));
            }
        };
        Ok(ValueCritic {
            state: State::new(model, optimizer, options),
        })
    }

    /// The model as it stands.
    pub fn model(&self) -> &Model {
        &self.state.model
    }

    /// The gradients accumulated so far.
    pub fn gradients(&self) -> &super::Gradients {
        &self.state.grads
    }
}

fn with_value_head(mut model: Model) -> Model {
    let device = model.device();
    let mut config = (*model.config).clone();
    config.head = HeadKind::TokenScore;
    let class = config
        .source
        .get("architectures")
        .and_then(|a| a[0].as_str())
        .unwrap_or("ForCausalLM");
    let class = class.replace("ForCausalLM", "ForTokenClassification");
    config
        .source
        .insert("architectures".into(), serde_json::json!([class]));
    config
        .source
        .insert("tie_word_embeddings".into(), false.into());
    config
        .source
        .insert("id2label".into(), serde_json::json!({"0": "LABEL_0"}));
    config
        .source
        .insert("label2id".into(), serde_json::json!({"LABEL_0": 0}));
    model.head = Head::Score(Linear::new(
        Tensor::zeros([1, config.hidden], &device),
        Some(Tensor::zeros([1], &device)),
    ));
    model.config = Arc::new(config);
    model
}

impl Critic for ValueCritic {
    fn values(&self, sequences: &[SequenceRef<'_>]) -> Result<Vec<Vec<f32>>> {
        let model = &self.state.model;
        let mut all = Vec::with_capacity(sequences.len());
        for chunk in chunks(sequences, self.state.options.score_tokens) {
            let packed = Packed::new(
                chunk,
                self.state.options.share_prompt_tokens,
                &model.device(),
            )?;
            let scores = model.output(model.hidden(&packed.ids, &packed.layout)?);
            let scores: Vec<f32> = scores.into_data().iter::<f32>().collect();
            let values: Vec<f32> = packed.rows.iter().map(|r| scores[*r]).collect();
            all.extend(split_rows(&values, chunk));
        }
        Ok(all)
    }

    fn forward_backward(
        &mut self,
        micro: &[&Trajectory],
        objective: &ValueObjective<'_>,
    ) -> Result<Vec<MetricSum>> {
        let dropping = self.state.dropping();
        let State {
            model,
            grads,
            options,
            ..
        } = &mut self.state;
        let model = dropping.as_ref().unwrap_or(model);
        let sequences: Vec<SequenceRef<'_>> = micro.iter().map(|t| SequenceRef::from(*t)).collect();
        let packed = Packed::new(&sequences, options.share_prompt_tokens, &model.device())?;
        let live = micro.iter().flat_map(|t| t.response_mask());
        let rows: Vec<i64> = packed
            .rows
            .iter()
            .zip(live)
            .filter(|(_, l)| **l)
            .map(|(r, _)| *r as i64)
            .collect();
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let n = rows.len();
        let rows = Tensor::from_data(TensorData::new(rows, [n]), &model.device());
        let pass = Pass::run(model, &packed.ids, &packed.layout, options.checkpoint_every)?;
        let all_hidden = pass.hidden();
        let hidden = all_hidden
            .clone()
            .select(0, rows.clone())
            .autodiff()
            .require_grad();
        let head = tracked_head(model)?;
        let values = head.forward(hidden.clone()).reshape([n]);
        let value = objective.evaluate(&ValueInput::new(micro, values)?)?;
        let mut recorded = value.loss.backward();
        if let Some(d) = hidden.grad_remove(&mut recorded) {
            pass.backward(
                all_hidden
                    .zeros_like()
                    .select_assign(0, rows, d, IndexingUpdateOp::Add),
                grads,
            );
        }
        let weight = head.weight.full();
        if let Some(d) = weight.and_then(|w| w.grad_remove(&mut recorded)) {
            grads.add_matrix("score.weight", d);
        }
        if let Some(d) = head.bias.and_then(|b| b.grad_remove(&mut recorded)) {
            grads.add_vector("score.bias", d);
        }
        Ok(value.metrics)
    }
}

fn tracked_head(model: &Model) -> Result<Linear> {
    match &model.head {
        Head::Score(head) => Ok(Linear::new(
            head.weight
                .tensor(&model.device())
                .autodiff()
                .require_grad(),
            head.bias.clone().map(|b| b.autodiff().require_grad()),
        )),
        _ => Err(Error::Unsupported("a critic needs a score head".into())),
    }
}

impl Trainable for ValueCritic {
    fn optimizer_step(&mut self) -> Result<UpdateReport> {
        self.state.step()
    }

    fn discard_gradients(&mut self) {
        self.state.discard();
    }

    fn save_pretrained(&self, dir: &Path) -> Result<()> {
        self.state.save_pretrained(dir)
    }

    fn save_state(&self, dir: &Path) -> Result<()> {
        self.state.save_state(dir)
    }

    fn load_state(&mut self, dir: &Path) -> Result<()> {
        self.state.load_state(dir)
    }
}
