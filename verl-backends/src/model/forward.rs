//! The forward pass, in pieces that an engine can take apart.
//!
//! Every function works on plain tensors and on autodiff tensors alike.

use super::attention::attend;
use super::config::{ModelConfig, MoeConfig};
use super::layout::Layout;
use super::moe;
use super::params::{Head, Layer, Mlp, Model};
use super::rope::RopeTable;
use burn::tensor::activation::silu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use verl_core::types::TokenId;
use verl_core::{Error, Result};

/// Called with the keys and values of one layer.
pub type Observe<'a> = &'a mut dyn FnMut(Tensor<3>, Tensor<3>);

/// Root-mean-square norm over the last dimension:
/// `x / sqrt(mean(x^2) + eps) * weight`.
pub fn rms_norm<const D: usize>(x: Tensor<D>, weight: &Tensor<1>, eps: f64) -> Tensor<D> {
    let scale = x
        .clone()
        .square()
        .mean_dim(D - 1)
        .add_scalar(eps)
        .sqrt()
        .recip();
    x * scale * weight.clone().unsqueeze()
}

impl Mlp {
    /// `[n, hidden] -> [n, hidden]`; `moe` is the experts' configuration.
    pub fn forward(&self, x: Tensor<2>, moe: Option<&MoeConfig>) -> Tensor<2> {
        match (self, moe) {
            (Mlp::Dense { gate, up, down }, _) => {
                down.forward(silu(gate.forward(x.clone())) * up.forward(x))
            }
            (Mlp::Sparse { router, experts }, Some(config)) => {
                moe::forward(config, router, experts, x)
            }
            (Mlp::Sparse { .. }, None) => x.zeros_like(),
        }
    }
}

impl Layer {
    /// Queries (scaled by `1 / sqrt(d)`), keys and values with positions
    /// applied, `[n, heads, head_dim]` and `[n, kv_heads, head_dim]`.
    pub fn qkv(
        &self,
        config: &ModelConfig,
        hidden: Tensor<2>,
        rope: &RopeTable,
    ) -> (Tensor<3>, Tensor<3>, Tensor<3>) {
        let x = rms_norm(hidden, &self.input_norm, config.norm_eps);
        let (n, d) = (x.dims()[0], config.head_dim);
        let mut q = self.q.forward(x.clone()).reshape([n, config.heads, d]);
        let mut k = self.k.forward(x.clone()).reshape([n, config.kv_heads, d]);
        let v = self.v.forward(x).reshape([n, config.kv_heads, d]);
        if let Some((q_norm, k_norm)) = &self.qk_norm {
            q = rms_norm(q, q_norm, config.norm_eps);
            k = rms_norm(k, k_norm, config.norm_eps);
        }
        let scale = 1.0 / (d as f64).sqrt();
        (rope.apply(q).mul_scalar(scale), rope.apply(k), v)
    }

    /// Output projection, residuals and the MLP, from what attention returned,
    /// `[n, heads * head_dim]`.
    pub fn finish(
        &self,
        config: &ModelConfig,
        residual: Tensor<2>,
        attended: Tensor<2>,
    ) -> Tensor<2> {
        let hidden = residual + self.o.forward(attended);
        let x = rms_norm(hidden.clone(), &self.post_norm, config.norm_eps);
        hidden + self.mlp.forward(x, config.moe.as_ref())
    }

    /// The whole layer number `index`, `[n, hidden] -> [n, hidden]`.
    pub fn forward(
        &self,
        config: &ModelConfig,
        index: usize,
        hidden: Tensor<2>,
        layout: &Layout,
        rope: &RopeTable,
    ) -> Tensor<2> {
        self.forward_with(config, index, hidden, layout, rope, &mut |_, _| {})
    }

    /// As [`Layer::forward`], showing the keys and values to `observe`.
    fn forward_with(
        &self,
        config: &ModelConfig,
        index: usize,
        hidden: Tensor<2>,
        layout: &Layout,
        rope: &RopeTable,
        observe: Observe<'_>,
    ) -> Tensor<2> {
        let (q, k, v) = self.qkv(config, hidden.clone(), rope);
        observe(k.clone(), v.clone());
        let attended = attend(q, k, v, layout, config.windows[index]);
        self.finish(config, hidden, attended)
    }
}

impl Model {
    /// # Errors
    /// [`Error::Invalid`] when an id lies outside the vocabulary.
    pub(crate) fn check_ids(&self, ids: &[TokenId]) -> Result<()> {
        let vocab = self.config.vocab;
        match ids.iter().position(|id| *id as usize >= vocab) {
            None => Ok(()),
            Some(i) => Err(Error::invalid(format!(
                "token {i} has id {}, outside the model's vocabulary of {vocab}; is this the model's own tokenizer?",
                ids[i]
            ))),
        }
    }

    /// Embeds packed ids, `[n, hidden]`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when an id lies outside the vocabulary.
    pub fn embed(&self, ids: &[TokenId]) -> Result<Tensor<2>> {
        self.check_ids(ids)?;
        let ids = id_tensor(ids, &self.device().inner());
        Ok(self.embed.clone().select(0, ids))
    }

    /// Hidden states after the last norm, `[n, hidden]`, of packed ids.
    ///
    /// # Errors
    /// As [`Model::embed`].
    pub fn hidden(&self, ids: &[TokenId], layout: &Layout) -> Result<Tensor<2>> {
        self.hidden_with(ids, layout, &mut |_, _| {})
    }

    /// As [`Model::hidden`], showing each layer's keys and values,
    /// `[n, kv_heads, head_dim]`, to `observe`: what a cache is filled with.
    ///
    /// # Errors
    /// As [`Model::embed`].
    pub fn hidden_with(
        &self,
        ids: &[TokenId],
        layout: &Layout,
        observe: Observe<'_>,
    ) -> Result<Tensor<2>> {
        #[cfg(feature = "flex")]
        if let Some(host) = self.host() {
            self.check_ids(ids)?;
            let dims = [ids.len(), self.config.kv_heads, self.config.head_dim];
            let tensor = |values| crate::host::tensor(values, dims);
            let hidden = host.hidden(ids, layout, &mut |k, v| observe(tensor(k), tensor(v)));
            return Ok(crate::host::tensor(hidden, [ids.len(), self.config.hidden]));
        }
        let rope = RopeTable::new(&self.config, &layout.positions, &self.device().inner());
        let mut hidden = self.embed(ids)?;
        for (i, layer) in self.layers.iter().enumerate() {
            hidden = layer.forward_with(&self.config, i, hidden, layout, &rope, observe);
        }
        Ok(self.final_norm(hidden))
    }

    /// The last norm.
    pub fn final_norm(&self, hidden: Tensor<2>) -> Tensor<2> {
        rms_norm(hidden, &self.norm, self.config.norm_eps)
    }

    /// The head's outputs for normed hidden states: logits `[n, vocab]`, or
    /// scores `[n, 1]`.
    pub fn output(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.head {
            Head::Tied => hidden.matmul(self.embed.clone().transpose()),
            Head::Untied(weight) => hidden.matmul(weight.clone().transpose()),
            Head::Score(linear) => linear.forward(hidden),
        }
    }
}

/// Ids as an index tensor, `[n]`.
pub(crate) fn id_tensor(ids: &[TokenId], device: &Device) -> Tensor<1, Int> {
    let values: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
    Tensor::from_data(TensorData::new(values, [ids.len()]), device)
}
