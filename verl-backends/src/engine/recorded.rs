//! The layers between embedding and head on burn's recorded operations.

use super::grads::Gradients;
use crate::model::{Layer, Layout, Model, ParamMut, RopeTable, id_tensor};
use burn::tensor::{Gradients as Recorded, IndexingUpdateOp, Tensor};
use std::ops::Range;
use verl_core::Result;
use verl_core::types::TokenId;

/// One forward pass that can be run backward.
///
/// The layers are cut into stretches. The last stretch is recorded; of the
/// others only the input is kept, and they run again, recorded, when the
/// gradient reaches them.
pub(super) struct RecordedPass<'a> {
    model: &'a Model,
    ids: &'a [TokenId],
    layout: &'a Layout,
    rope: RopeTable,
    /// Layers and stored input of each unrecorded stretch.
    stored: Vec<(Range<usize>, Tensor<2>)>,
    tail: Stretch,
}

/// A recorded stretch of layers.
struct Stretch {
    layers: Vec<(usize, Layer)>,
    norm: Option<Tensor<1>>,
    input: Tensor<2>,
    output: Tensor<2>,
}

impl<'a> RecordedPass<'a> {
    /// Runs the trunk. `every` layers form a stretch; 0 records all layers.
    pub(super) fn run(
        model: &'a Model,
        ids: &'a [TokenId],
        layout: &'a Layout,
        every: usize,
    ) -> Result<Self> {
        let rope = RopeTable::new(&model.config, &layout.positions, &model.device());
        let stretches = stretches(model.layers.len(), every);
        let mut hidden = model.embed(ids)?;
        let mut stored = Vec::new();
        let (last, earlier) = match stretches.split_last() {
            Some((last, earlier)) => (last.clone(), earlier),
            None => (0..0, &stretches[..]),
        };
        for range in earlier {
            stored.push((range.clone(), hidden.clone()));
            for i in range.clone() {
                hidden = model.layers[i].forward(&model.config, i, hidden, layout, &rope);
            }
        }
        let tail = Stretch::record(model, last, hidden, layout, &rope, true);
        Ok(RecordedPass {
            model,
            ids,
            layout,
            rope,
            stored,
            tail,
        })
    }

    /// Normed hidden states, `[n, hidden]`, not recorded.
    pub(super) fn hidden(&self) -> Tensor<2> {
        self.tail.output.clone().inner()
    }

    /// Adds all gradients, given that of the hidden states.
    pub(super) fn backward(self, d_hidden: Tensor<2>, grads: &mut Gradients) {
        let mut d = self.tail.backward(d_hidden, grads);
        for (range, input) in self.stored.into_iter().rev() {
            d = Stretch::record(self.model, range, input, self.layout, &self.rope, false)
                .backward(d, grads);
        }
        let name = "model.embed_tokens.weight";
        if grads.wants(name) {
            let embed = self.model.embed.zeros_like();
            let ids = id_tensor(self.ids, &embed.device());
            let grad = embed.select_assign(0, ids, d, IndexingUpdateOp::Add);
            grads.add_matrix(name, grad);
        }
    }
}

fn stretches(layers: usize, every: usize) -> Vec<Range<usize>> {
    let every = if every == 0 { layers.max(1) } else { every };
    (0..layers)
        .step_by(every)
        .map(|start| start..(start + every).min(layers))
        .collect()
}

impl Stretch {
    fn record(
        model: &Model,
        range: Range<usize>,
        input: Tensor<2>,
        layout: &Layout,
        rope: &RopeTable,
        with_norm: bool,
    ) -> Self {
        let input = input.autodiff().require_grad();
        let mut layers = Vec::new();
        let mut hidden = input.clone();
        for i in range {
            let mut layer = model.layers[i].clone();
            layer.each(i, &mut |name, param| track(param, model.trains(name)));
            hidden = layer.forward(&model.config, i, hidden, layout, rope);
            layers.push((i, layer));
        }
        let trained = model.trains("model.norm.weight");
        let norm = with_norm.then(|| model.norm.clone().autodiff().set_require_grad(trained));
        let output = match &norm {
            Some(norm) => crate::model::rms_norm(hidden, norm, model.config.norm_eps),
            None => hidden,
        };
        Stretch {
            layers,
            norm,
            input,
            output,
        }
    }

    /// The gradient enters through `sum(output * d)`, whose derivative by the
    /// output is `d`. Returns the gradient of the input.
    fn backward(self, d: Tensor<2>, grads: &mut Gradients) -> Tensor<2> {
        let mut recorded = (self.output * d.clone()).sum().backward();
        if let Some(grad) = self.norm.and_then(|norm| norm.grad_remove(&mut recorded)) {
            grads.add_vector("model.norm.weight", grad);
        }
        for (i, mut layer) in self.layers {
            layer.each(i, &mut |name, param| {
                collect(name, param, &mut recorded, grads)
            });
        }
        self.input
            .grad_remove(&mut recorded)
            .unwrap_or_else(|| d.zeros_like())
    }
}

/// Puts a parameter on the recording device; what is frozen gets no gradient.
fn track(param: ParamMut<'_>, trained: bool) {
    match param {
        ParamMut::Vector(t) => *t = t.clone().autodiff().set_require_grad(trained),
        ParamMut::Matrix(t) => *t = t.clone().autodiff().set_require_grad(trained),
    }
}

fn collect(name: &str, param: ParamMut<'_>, recorded: &mut Recorded, grads: &mut Gradients) {
    match param {
        ParamMut::Vector(t) => {
            if let Some(grad) = t.grad_remove(recorded) {
                grads.add_vector(name, grad);
            }
        }
        ParamMut::Matrix(t) => {
            if let Some(grad) = t.grad_remove(recorded) {
                grads.add_matrix(name, grad);
            }
        }
    }
}
