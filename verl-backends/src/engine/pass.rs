//! One forward pass through the trunk that can be run backward.

use super::Gradients;
use super::recorded::RecordedPass;
#[cfg(feature = "flex")]
use crate::host::{self, HostPass, View};
use crate::model::{Layout, Model};
use burn::tensor::Tensor;
use verl_core::Result;
use verl_core::types::TokenId;

/// The layers of a model, run once over packed tokens.
///
/// Layers are cut into stretches. What the backward pass needs is kept of the
/// last stretch only; of the others the input is kept, and they run again.
pub(super) enum Pass<'a> {
    /// On the CPU's own kernels.
    #[cfg(feature = "flex")]
    Host(Box<HostPass<'a>>, Tensor<2>),
    /// On burn's operations.
    Recorded(Box<RecordedPass<'a>>),
}

impl<'a> Pass<'a> {
    /// Runs the trunk. `every` layers form a stretch; 0 keeps all layers.
    ///
    /// # Errors
    /// When an id lies outside the vocabulary.
    pub(super) fn run(
        model: &'a Model,
        ids: &'a [TokenId],
        layout: &'a Layout,
        every: usize,
    ) -> Result<Self> {
        #[cfg(feature = "flex")]
        if let Some(host) = model.host() {
            model.check_ids(ids)?;
            let (pass, hidden) = HostPass::run(host, ids, layout, every);
            let hidden = host::tensor(hidden, [ids.len(), model.config.hidden]);
            return Ok(Pass::Host(Box::new(pass), hidden));
        }
        let pass = RecordedPass::run(model, ids, layout, every)?;
        Ok(Pass::Recorded(Box::new(pass)))
    }

    /// Normed hidden states, `[n, hidden]`, not recorded.
    pub(super) fn hidden(&self) -> Tensor<2> {
        match self {
            #[cfg(feature = "flex")]
            Pass::Host(_, hidden) => hidden.clone(),
            Pass::Recorded(pass) => pass.hidden(),
        }
    }

    /// Adds all gradients, given that of the hidden states.
    pub(super) fn backward(self, d_hidden: Tensor<2>, grads: &mut Gradients) {
        match self {
            #[cfg(feature = "flex")]
            Pass::Host(pass, hidden) => {
                drop(hidden);
                match View::of(&d_hidden) {
                    Some(d_hidden) => pass.backward(&d_hidden, grads),
                    None => pass.backward(&host::values(d_hidden), grads),
                }
            }
            Pass::Recorded(pass) => pass.backward(d_hidden, grads),
        }
    }
}
