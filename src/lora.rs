//! The adapters that a run's configuration asks for.

use verl_backends::model::{Coding, LoraConfig, Model, Targets};
use verl_backends::weights::load_adapter;
use verl_core::Result;
use verl_core::config::{ActorModelConfig, LoraSettings, Quantization, TargetModules};

/// The model with a new adapter, or with the existing one that is configured,
/// or as it is. Its tensors are shared, not copied.
pub(crate) fn adapted(base: &Model, config: &ActorModelConfig, seed: u64) -> Result<Model> {
    let Some(path) = &config.lora.adapter_path else {
        return fresh(base, config, seed);
    };
    let mut model = base.clone();
    load_adapter(&mut model, path)?;
    model.set_lora_dropout(config.lora.dropout)?;
    report(&model);
    Ok(model)
}

/// The model with a new adapter where one is configured; an existing adapter is
/// the policy's alone, and gives its shape here.
pub(crate) fn fresh(base: &Model, config: &ActorModelConfig, seed: u64) -> Result<Model> {
    let mut model = base.clone();
    match &config.lora.adapter_path {
        Some(path) => {
            let shape = verl_backends::weights::adapter_config(path)?;
            model.attach_lora(shape, seed)?;
            model.set_lora_dropout(config.lora.dropout)?;
        }
        None if config.lora.rank > 0 => model.attach_lora(lora_config(config), seed)?,
        None => return Ok(model),
    }
    report(&model);
    Ok(model)
}

fn lora_config(config: &ActorModelConfig) -> LoraConfig {
    let LoraSettings {
        rank,
        alpha,
        dropout,
        rslora,
        target_modules,
        exclude_modules,
        adapter_path: _,
    } = config.lora.clone();
    LoraConfig {
        rank,
        alpha,
        dropout,
        stabilised: rslora,
        targets: match target_modules {
            TargetModules::Text(text) => Targets::from_text(&text),
            TargetModules::Names(names) => Targets::Names(names),
        },
        exclude: exclude_modules,
        base: config.path.display().to_string(),
    }
}

/// How the weights under the adapter are kept; `None` as they are.
pub(crate) fn coding(quantization: Quantization) -> Option<Coding> {
    match quantization {
        Quantization::None => None,
        Quantization::Nf4 => Some(Coding::Nf4),
        Quantization::Nf4Double => Some(Coding::Nf4Double),
        Quantization::Int8 => Some(Coding::Int8),
    }
}

fn report(model: &Model) {
    let (mut trained, total) = (0, model.parameter_count());
    model.clone().each(&mut |name, param| {
        let size: usize = param.dims().iter().product();
        trained += if model.trains(name) { size } else { 0 };
    });
    tracing::info!(trained, total, "parameters of the model with its adapter");
}
