//! The parameters, by their Hugging Face names.

use super::config::{HeadKind, ModelConfig};
use super::linear::Linear;
use super::lora::LoraConfig;
use burn::tensor::{Device, Tensor, TensorData};
use rand::RngExt as _;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use verl_core::config::Kernels;
use verl_core::rollout::WeightTensor;

/// The feed-forward part of a layer.
#[derive(Debug, Clone)]
pub enum Mlp {
    /// `down(silu(gate(x)) * up(x))`.
    Dense {
        /// Gate projection.
        gate: Linear,
        /// Up projection.
        up: Linear,
        /// Down projection.
        down: Linear,
    },
    /// Experts behind a router.
    Sparse {
        /// `[experts, hidden]`.
        router: Tensor<2>,
        /// The experts, each a dense MLP.
        experts: Vec<Mlp>,
    },
}

/// One decoder layer.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Norm before attention.
    pub input_norm: Tensor<1>,
    /// Query projection.
    pub q: Linear,
    /// Key projection.
    pub k: Linear,
    /// Value projection.
    pub v: Linear,
    /// Output projection.
    pub o: Linear,
    /// Norms on the heads of q and k.
    pub qk_norm: Option<(Tensor<1>, Tensor<1>)>,
    /// Norm before the MLP.
    pub post_norm: Tensor<1>,
    /// The MLP.
    pub mlp: Mlp,
}

/// What stands on top.
#[derive(Debug, Clone)]
pub enum Head {
    /// The embedding matrix.
    Tied,
    /// `[vocab, hidden]`.
    Untied(Tensor<2>),
    /// One output, `[1, hidden]`, with bias for critics.
    Score(Linear),
}

/// A decoder. Cloning shares the tensors.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its shape.
    pub config: Arc<ModelConfig>,
    /// `[vocab, hidden]`.
    pub embed: Tensor<2>,
    /// The layers.
    pub layers: Vec<Layer>,
    /// The last norm.
    pub norm: Tensor<1>,
    /// The head.
    pub head: Head,
    /// What runs the layers.
    pub kernels: Kernels,
    /// The adapter on the projections; with one, the rest is frozen.
    pub lora: Option<Arc<LoraConfig>>,
}

/// A parameter in place.
#[derive(Debug)]
pub enum ParamMut<'a> {
    /// A norm or a bias.
    Vector(&'a mut Tensor<1>),
    /// A matrix.
    Matrix(&'a mut Tensor<2>),
}

impl ParamMut<'_> {
    /// The shape.
    pub fn dims(&self) -> Vec<usize> {
        match self {
            ParamMut::Vector(t) => t.dims().to_vec(),
            ParamMut::Matrix(t) => t.dims().to_vec(),
        }
    }

    /// A handle on the tensor.
    pub fn tensor(&self) -> WeightTensor {
        match self {
            ParamMut::Vector(t) => WeightTensor::Vector((*t).clone()),
            ParamMut::Matrix(t) => WeightTensor::Matrix((*t).clone()),
        }
    }

    /// Puts `tensor` in place; `false` when the ranks differ.
    pub fn replace(self, tensor: WeightTensor) -> bool {
        match (self, tensor) {
            (ParamMut::Vector(slot), WeightTensor::Vector(t)) => *slot = t,
            (ParamMut::Matrix(slot), WeightTensor::Matrix(t)) => *slot = t,
            _ => return false,
        }
        true
    }
}

/// Called with each parameter's name and place.
pub type Visit<'a> = &'a mut dyn FnMut(&str, ParamMut<'_>);

/// Called with each projection's name and place.
pub type VisitLinear<'a> = &'a mut dyn FnMut(&str, &mut Linear);

impl Mlp {
    /// Visits the projections.
    fn each_linear(&mut self, name: &str, visit: VisitLinear<'_>) {
        match self {
            Mlp::Dense { gate, up, down } => {
                visit(&format!("{name}.gate_proj"), gate);
                visit(&format!("{name}.up_proj"), up);
                visit(&format!("{name}.down_proj"), down);
            }
            Mlp::Sparse { experts, .. } => {
                for (i, expert) in experts.iter_mut().enumerate() {
                    expert.each_linear(&format!("{name}.experts.{i}"), visit);
                }
            }
        }
    }

    fn each(&mut self, name: &str, visit: Visit<'_>) {
        match self {
            Mlp::Dense { gate, up, down } => {
                gate.each(&format!("{name}.gate_proj"), visit);
                up.each(&format!("{name}.up_proj"), visit);
                down.each(&format!("{name}.down_proj"), visit);
            }
            Mlp::Sparse { router, experts } => {
                visit(&format!("{name}.gate.weight"), ParamMut::Matrix(router));
                for (i, expert) in experts.iter_mut().enumerate() {
                    expert.each(&format!("{name}.experts.{i}"), visit);
                }
            }
        }
    }
}

impl Layer {
    /// Visits the layer's parameters in a fixed order; names start with
    /// `model.layers.{index}`.
    pub fn each(&mut self, index: usize, visit: Visit<'_>) {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        visit(
            &name("input_layernorm.weight"),
            ParamMut::Vector(&mut self.input_norm),
        );
        self.q.each(&name("self_attn.q_proj"), visit);
        self.k.each(&name("self_attn.k_proj"), visit);
        self.v.each(&name("self_attn.v_proj"), visit);
        self.o.each(&name("self_attn.o_proj"), visit);
        if let Some((q, k)) = &mut self.qk_norm {
            visit(&name("self_attn.q_norm.weight"), ParamMut::Vector(q));
            visit(&name("self_attn.k_norm.weight"), ParamMut::Vector(k));
        }
        visit(
            &name("post_attention_layernorm.weight"),
            ParamMut::Vector(&mut self.post_norm),
        );
        self.mlp.each(&name("mlp"), visit);
    }
}

impl Model {
    /// A model of the right shapes whose tensors take no memory, to be filled
    /// by name.
    pub fn skeleton(config: Arc<ModelConfig>, device: &Device) -> Self {
        let shapes = Shapes {
            config: &config,
            device,
        };
        Model {
            embed: shapes.matrix(config.vocab, config.hidden),
            layers: (0..config.layers).map(|i| shapes.layer(i)).collect(),
            norm: shapes.vector(config.hidden),
            head: match config.head {
                HeadKind::CausalLm { tied: true } => Head::Tied,
                HeadKind::CausalLm { tied: false } => {
                    Head::Untied(shapes.matrix(config.vocab, config.hidden))
                }
                HeadKind::TokenScore => Head::Score(shapes.linear(1, config.hidden, true)),
                HeadKind::SequenceScore => Head::Score(shapes.linear(1, config.hidden, false)),
            },
            config,
            kernels: Kernels::default(),
            lora: None,
        }
    }

    /// A model with fresh weights: norms 1, biases 0, the rest normal with the
    /// configured deviation. The same seed gives the same weights on every
    /// device.
    pub fn random(config: Arc<ModelConfig>, seed: u64, device: &Device) -> Self {
        let mut model = Model::skeleton(config, device);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let deviation = model.config.initializer_range as f32;
        model.each(&mut |name, param| {
            let tensor = match param.dims()[..] {
                [n] => {
                    let value = if name.ends_with("bias") { 0.0 } else { 1.0 };
                    WeightTensor::Vector(Tensor::full([n], value, device))
                }
                [rows, cols] => {
                    let values: Vec<f32> = (0..rows * cols)
                        .map(|_| deviation * normal(&mut rng))
                        .collect();
                    WeightTensor::Matrix(Tensor::from_data(
                        TensorData::new(values, [rows, cols]),
                        device,
                    ))
                }
                _ => return,
            };
            param.replace(tensor);
        });
        model
    }

    /// Visits every parameter in a fixed order.
    pub fn each(&mut self, visit: Visit<'_>) {
        visit(
            "model.embed_tokens.weight",
            ParamMut::Matrix(&mut self.embed),
        );
        for (i, layer) in self.layers.iter_mut().enumerate() {
            layer.each(i, visit);
        }
        visit("model.norm.weight", ParamMut::Vector(&mut self.norm));
        match &mut self.head {
            Head::Tied => {}
            Head::Untied(weight) => visit("lm_head.weight", ParamMut::Matrix(weight)),
            Head::Score(linear) => linear.each("score", visit),
        }
    }

    /// Visits every projection of the layers in a fixed order; names are those
    /// of the modules, such as `model.layers.0.self_attn.q_proj`.
    pub fn each_linear(&mut self, visit: VisitLinear<'_>) {
        for (i, layer) in self.layers.iter_mut().enumerate() {
            let name = |part: &str| format!("model.layers.{i}.{part}");
            visit(&name("self_attn.q_proj"), &mut layer.q);
            visit(&name("self_attn.k_proj"), &mut layer.k);
            visit(&name("self_attn.v_proj"), &mut layer.v);
            visit(&name("self_attn.o_proj"), &mut layer.o);
            layer.mlp.each_linear(&name("mlp"), visit);
        }
    }

    /// Handles on all parameters, in the order of [`Model::each`].
    pub fn tensors(&self) -> Vec<(String, WeightTensor)> {
        let mut tensors = Vec::new();
        self.clone()
            .each(&mut |name, param| tensors.push((name.to_string(), param.tensor())));
        tensors
    }

    /// Number of parameters.
    pub fn parameter_count(&self) -> usize {
        let mut count = 0;
        let mut model = self.clone();
        model.each(&mut |_, param| count += param.dims().iter().product::<usize>());
        model.each_linear(&mut |_, linear| {
            if linear.weight.full().is_none() {
                count += linear.weight.dims().iter().product::<usize>();
            }
        });
        count
    }

    /// The device the weights are on.
    pub fn device(&self) -> Device {
        self.norm.device()
    }

    /// The model on the CPU's own kernels, where they can serve it.
    #[cfg(feature = "flex")]
    pub(crate) fn host(&self) -> Option<crate::host::HostModel> {
        match self.kernels {
            Kernels::Fused => crate::host::HostModel::of(self),
            Kernels::Plain => None,
        }
    }

    /// Whether the CPU's own kernels serve the model.
    pub(crate) fn decodes_on_host(&self) -> bool {
        #[cfg(feature = "flex")]
        return self.host().is_some();
        #[cfg(not(feature = "flex"))]
        false
    }

    /// The matrix that gives logits, `[vocab, hidden]`; `None` under a score
    /// head.
    pub fn lm_head(&self) -> Option<&Tensor<2>> {
        match &self.head {
            Head::Tied => Some(&self.embed),
            Head::Untied(weight) => Some(weight),
            Head::Score(_) => None,
        }
    }
}

/// A standard normal number by Box and Muller's transform.
fn normal(rng: &mut ChaCha8Rng) -> f32 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    ((-2.0 * (1.0 - u).ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()) as f32
}

/// Makes tensors that have a shape and share one zero.
struct Shapes<'a> {
    config: &'a ModelConfig,
    device: &'a Device,
}

impl Shapes<'_> {
    fn vector(&self, n: usize) -> Tensor<1> {
        Tensor::<1>::zeros([1], self.device).expand([n])
    }

    fn matrix(&self, rows: usize, cols: usize) -> Tensor<2> {
        Tensor::<2>::zeros([1, 1], self.device).expand([rows, cols])
    }

    fn linear(&self, rows: usize, cols: usize, bias: bool) -> Linear {
        Linear::new(self.matrix(rows, cols), bias.then(|| self.vector(rows)))
    }

    fn dense(&self, width: usize, bias: bool) -> Mlp {
        let hidden = self.config.hidden;
        Mlp::Dense {
            gate: self.linear(width, hidden, bias),
            up: self.linear(width, hidden, bias),
            down: self.linear(hidden, width, bias),
        }
    }

    fn layer(&self, index: usize) -> Layer {
        let c = self.config;
        let (q, kv) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let mlp = match c.moe.as_ref().filter(|_| c.sparse[index]) {
            Some(moe) => Mlp::Sparse {
                router: self.matrix(moe.experts, c.hidden),
                experts: (0..moe.experts)
                    .map(|_| self.dense(moe.intermediate, false))
                    .collect(),
            },
            None => self.dense(c.intermediate, c.mlp_bias),
        };
        Layer {
            input_norm: self.vector(c.hidden),
            q: self.linear(q, c.hidden, c.qkv_bias),
            k: self.linear(kv, c.hidden, c.qkv_bias),
            v: self.linear(kv, c.hidden, c.qkv_bias),
            o: self.linear(c.hidden, q, c.o_bias),
            qk_norm: c
                .qk_norm
                .then(|| (self.vector(c.head_dim), self.vector(c.head_dim))),
            post_norm: self.vector(c.hidden),
            mlp,
        }
    }
}
