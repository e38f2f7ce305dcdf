//! One decoder layer, forward and backward.

use super::attention::{self, Attended, Heads, Qkv, Span};
use super::elementwise::{Rotation, Turn, add, swiglu, swiglu_backward};
use super::linear::HostLinear;
use super::norm::{self, Scales};
use super::view::View;
use crate::engine::Gradients;
use crate::model::{Layer, Mlp, ModelConfig};

/// A layer's weights, in place.
#[derive(Debug)]
pub(crate) struct HostLayer {
    index: usize,
    input_norm: View,
    q: HostLinear,
    k: HostLinear,
    v: HostLinear,
    o: HostLinear,
    qk_norm: Option<(View, View)>,
    post_norm: View,
    gate: HostLinear,
    up: HostLinear,
    down: HostLinear,
}

/// What all layers of one pass share.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) config: &'a ModelConfig,
    pub(crate) spans: &'a [Span],
    pub(crate) rotation: &'a Rotation,
    pub(crate) tokens: usize,
}

/// What the backward pass needs of the forward pass. Normed inputs and the
/// MLP's activations are cheap and computed again.
#[derive(Debug)]
pub(crate) struct Saved {
    input: Vec<f32>,
    input_scales: Scales,
    raw_heads: Option<(RawHeads, RawHeads)>,
    q: Vec<f32>,
    /// Rotated keys, `[n, kv_heads * head_dim]`.
    pub(crate) k: Vec<f32>,
    /// Values, `[n, kv_heads * head_dim]`.
    pub(crate) v: Vec<f32>,
    attended: Vec<f32>,
    denominators: Vec<f32>,
    middle: Vec<f32>,
    middle_scales: Scales,
    gate: Vec<f32>,
    up: Vec<f32>,
}

/// Queries or keys before their norm, and the norm's scales.
type RawHeads = (Vec<f32>, Scales);

impl HostLayer {
    /// `None` when the layer is not f32 on the CPU device, or its MLP is a
    /// mixture of experts.
    pub(crate) fn of(index: usize, layer: &Layer) -> Option<Self> {
        let Mlp::Dense { gate, up, down } = &layer.mlp else {
            return None;
        };
        let qk_norm = match &layer.qk_norm {
            Some((q, k)) => Some((View::of(q)?, View::of(k)?)),
            None => None,
        };
        Some(HostLayer {
            index,
            input_norm: View::of(&layer.input_norm)?,
            q: HostLinear::of(&layer.q)?,
            k: HostLinear::of(&layer.k)?,
            v: HostLinear::of(&layer.v)?,
            o: HostLinear::of(&layer.o)?,
            qk_norm,
            post_norm: View::of(&layer.post_norm)?,
            gate: HostLinear::of(gate)?,
            up: HostLinear::of(up)?,
            down: HostLinear::of(down)?,
        })
    }

    /// Keeps copies of the weights in 16 bits for decoding.
    pub(crate) fn shorten(&mut self) {
        let parts = [&mut self.q, &mut self.k, &mut self.v, &mut self.o];
        let mlp = [&mut self.gate, &mut self.up, &mut self.down];
        parts.into_iter().chain(mlp).for_each(HostLinear::shorten);
    }

    pub(crate) fn heads(&self, config: &ModelConfig) -> Heads {
        Heads {
            query: config.heads,
            key: config.kv_heads,
            width: config.head_dim,
            window: config.windows[self.index],
        }
    }

    /// `[n, hidden] -> [n, hidden]`.
    pub(crate) fn forward(&self, input: Vec<f32>, context: &Context<'_>) -> (Vec<f32>, Saved) {
        let (config, n) = (context.config, context.tokens);
        let (x, input_scales) = norm::forward(&input, &self.input_norm, config.norm_eps);
        let (mut q, mut k) = (self.q.forward(&x, n), self.k.forward(&x, n));
        let v = self.v.forward(&x, n);
        let mut raw_heads = None;
        if let Some((q_weight, k_weight)) = &self.qk_norm {
            let (normed_q, q_scales) = norm::forward(&q, q_weight, config.norm_eps);
            let (normed_k, k_scales) = norm::forward(&k, k_weight, config.norm_eps);
            let raw_q = std::mem::replace(&mut q, normed_q);
            let raw_k = std::mem::replace(&mut k, normed_k);
            raw_heads = Some(((raw_q, q_scales), (raw_k, k_scales)));
        }
        let scale = attention_scale(config);
        context
            .rotation
            .apply(&mut q, config.heads, scale, Turn::Forward);
        context
            .rotation
            .apply(&mut k, config.kv_heads, 1.0, Turn::Forward);
        let qkv = Qkv {
            q: &q,
            k: &k,
            v: &v,
        };
        let (attended, denominators) = attention::forward(qkv, context.spans, self.heads(config));
        let mut middle = self.o.forward(&attended, n);
        add(&mut middle, &input);
        let (x, middle_scales) = norm::forward(&middle, &self.post_norm, config.norm_eps);
        let (gate, up) = (self.gate.forward(&x, n), self.up.forward(&x, n));
        let mut out = self.down.forward(&swiglu(&gate, &up), n);
        add(&mut out, &middle);
        let saved = Saved {
            input,
            input_scales,
            raw_heads,
            q,
            k,
            v,
            attended,
            denominators,
            middle,
            middle_scales,
            gate,
            up,
        };
        (out, saved)
    }

    /// Queries (scaled), keys and values of one new token per row.
    pub(crate) fn decode_qkv(
        &self,
        config: &ModelConfig,
        input: &[f32],
        n: usize,
        rotation: &Rotation,
    ) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let x = norm::forward(input, &self.input_norm, config.norm_eps).0;
        let (mut q, mut k) = (self.q.decode(&x, n), self.k.decode(&x, n));
        if let Some((q_weight, k_weight)) = &self.qk_norm {
            q = norm::forward(&q, q_weight, config.norm_eps).0;
            k = norm::forward(&k, k_weight, config.norm_eps).0;
        }
        rotation.apply(&mut q, config.heads, attention_scale(config), Turn::Forward);
        rotation.apply(&mut k, config.kv_heads, 1.0, Turn::Forward);
        (q, k, self.v.decode(&x, n))
    }

    /// The layer's output, from what the new tokens attended to.
    pub(crate) fn decode_finish(
        &self,
        config: &ModelConfig,
        mut hidden: Vec<f32>,
        attended: &[f32],
        n: usize,
    ) -> Vec<f32> {
        add(&mut hidden, &self.o.decode(attended, n));
        let x = norm::forward(&hidden, &self.post_norm, config.norm_eps).0;
        let activated = swiglu(&self.gate.decode(&x, n), &self.up.decode(&x, n));
        add(&mut hidden, &self.down.decode(&activated, n));
        hidden
    }

    /// Adds the gradients of the weights, and turns the gradient of the output
    /// into that of the input.
    pub(crate) fn backward(
        &self,
        saved: Saved,
        d_out: Vec<f32>,
        context: &Context<'_>,
        grads: &mut Gradients,
    ) -> Vec<f32> {
        let (d_middle, saved) = self.mlp_backward(saved, d_out, context, grads);
        self.attention_backward(saved, d_middle, context, grads)
    }

    /// From the output back to the sum before the MLP's norm.
    fn mlp_backward(
        &self,
        mut saved: Saved,
        d_out: Vec<f32>,
        context: &Context<'_>,
        grads: &mut Gradients,
    ) -> (Vec<f32>, Saved) {
        let (mut gate, mut up) = (
            std::mem::take(&mut saved.gate),
            std::mem::take(&mut saved.up),
        );
        let mut grads = Sink {
            layer: self.index,
            tokens: context.tokens,
            grads,
        };
        let activated = swiglu(&gate, &up);
        grads.linear("mlp.down_proj", &self.down, &d_out, &activated);
        let mut d_activated = activated;
        d_activated.fill(0.0);
        self.down.backward(&d_out, context.tokens, &mut d_activated);
        swiglu_backward(&d_activated, &mut gate, &mut up);
        let x = norm::again(&saved.middle, &self.post_norm, &saved.middle_scales);
        grads.linear("mlp.gate_proj", &self.gate, &gate, &x);
        grads.linear("mlp.up_proj", &self.up, &up, &x);
        let mut d_x = x;
        d_x.fill(0.0);
        self.gate.backward(&gate, context.tokens, &mut d_x);
        self.up.backward(&up, context.tokens, &mut d_x);
        let mut d_middle = d_out;
        let normed = Normed {
            d: &d_x,
            x: &saved.middle,
            weight: &self.post_norm,
            scales: &saved.middle_scales,
        };
        grads.norm("post_attention_layernorm.weight", normed, &mut d_middle);
        (d_middle, saved)
    }

    /// From the sum before the MLP's norm back to the input.
    fn attention_backward(
        &self,
        saved: Saved,
        d_middle: Vec<f32>,
        context: &Context<'_>,
        grads: &mut Gradients,
    ) -> Vec<f32> {
        let (config, n) = (context.config, context.tokens);
        let mut grads = Sink {
            layer: self.index,
            tokens: n,
            grads,
        };
        grads.linear("self_attn.o_proj", &self.o, &d_middle, &saved.attended);
        let mut d_attended = vec![0f32; saved.attended.len()];
        self.o.backward(&d_middle, n, &mut d_attended);
        let qkv = Qkv {
            q: &saved.q,
            k: &saved.k,
            v: &saved.v,
        };
        let attended = Attended {
            out: &saved.attended,
            denominators: &saved.denominators,
            d_out: &d_attended,
        };
        let mut d = attention::backward(qkv, attended, context.spans, self.heads(config));
        let scale = attention_scale(config);
        context
            .rotation
            .apply(&mut d.q, config.heads, scale, Turn::Back);
        context
            .rotation
            .apply(&mut d.k, config.kv_heads, 1.0, Turn::Back);
        if let (Some((q, k)), Some((q_weight, k_weight))) = (&saved.raw_heads, &self.qk_norm) {
            for (name, d, (x, scales), weight) in [
                ("self_attn.q_norm.weight", &mut d.q, q, q_weight),
                ("self_attn.k_norm.weight", &mut d.k, k, k_weight),
            ] {
                let mut d_raw = vec![0f32; d.len()];
                let normed = Normed {
                    d,
                    x,
                    weight,
                    scales,
                };
                grads.norm(name, normed, &mut d_raw);
                *d = d_raw;
            }
        }
        let x = norm::again(&saved.input, &self.input_norm, &saved.input_scales);
        let mut d_x = vec![0f32; x.len()];
        for (name, linear, d) in [
            ("self_attn.q_proj", &self.q, &d.q),
            ("self_attn.k_proj", &self.k, &d.k),
            ("self_attn.v_proj", &self.v, &d.v),
        ] {
            grads.linear(name, linear, d, &x);
            linear.backward(d, n, &mut d_x);
        }
        let mut d_input = d_middle;
        let normed = Normed {
            d: &d_x,
            x: &saved.input,
            weight: &self.input_norm,
            scales: &saved.input_scales,
        };
        grads.norm("input_layernorm.weight", normed, &mut d_input);
        d_input
    }
}

fn attention_scale(config: &ModelConfig) -> f32 {
    1.0 / (config.head_dim as f32).sqrt()
}

/// A norm in the backward pass.
struct Normed<'a> {
    d: &'a [f32],
    x: &'a [f32],
    weight: &'a View,
    scales: &'a [f32],
}

/// Where a layer's gradients go.
struct Sink<'a> {
    layer: usize,
    tokens: usize,
    grads: &'a mut Gradients,
}

impl Sink<'_> {
    fn name(&self, part: &str) -> String {
        format!("model.layers.{}.{part}", self.layer)
    }

    fn linear(&mut self, part: &str, linear: &HostLinear, d: &[f32], x: &[f32]) {
        let n = self.tokens;
        let name = self.name(part);
        let dims = [d.len() / n, x.len() / n];
        self.grads
            .in_matrix(&format!("{name}.weight"), dims, |sum| {
                HostLinear::weight_gradient(d, x, n, sum)
            });
        if linear.has_bias() {
            self.grads
                .in_vector(&format!("{name}.bias"), dims[0], |sum| {
                    HostLinear::bias_gradient(d, sum)
                });
        }
        if let Some(adapter) = linear.adapter() {
            let [a, b] = adapter.dims();
            let (a_name, b_name) = (
                format!("{name}.lora_A.weight"),
                format!("{name}.lora_B.weight"),
            );
            self.grads
                .in_matrix(&a_name, a, |sum| adapter.a_gradient(d, x, n, sum));
            self.grads
                .in_matrix(&b_name, b, |sum| adapter.b_gradient(d, x, n, sum));
        }
    }

    /// Adds the weight's gradient, and the input's to `d_x`.
    fn norm(&mut self, part: &str, normed: Normed<'_>, d_x: &mut [f32]) {
        let Normed {
            d,
            x,
            weight,
            scales,
        } = normed;
        let name = self.name(part);
        norm_gradient(self.grads, &name, weight.len(), |sum| {
            norm::backward(d, x, weight, scales, d_x, sum)
        });
    }
}

/// Lets `add` add to the gradient of a norm's weight; it also works on the
/// input's gradient, and so runs when the weight is frozen too.
pub(super) fn norm_gradient(
    grads: &mut Gradients,
    name: &str,
    width: usize,
    add: impl FnOnce(&mut [f32]),
) {
    match grads.wants(name) {
        true => grads.in_vector(name, width, add),
        false => add(&mut vec![0f32; width]),
    }
}
