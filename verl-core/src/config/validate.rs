//! Values that are well-typed but cannot work.

use super::{OptimConfig, Quantization, RunConfig};
use crate::{Error, Result};
use std::fmt::Display;

/// Collects what is wrong, key by key.
#[derive(Default)]
struct Findings(Vec<Error>);

impl Findings {
    fn require(&mut self, key: impl Into<String>, holds: bool, message: impl Display) {
        if !holds {
            self.0.push(Error::config(key, message.to_string()));
        }
    }

    fn range(&mut self, key: impl Into<String>, holds: bool, got: impl Display, want: &str) {
        self.require(
            key,
            holds,
            format!("{got} is out of range; it must be {want}"),
        );
    }

    /// A share that must leave something over.
    fn share(&mut self, key: impl Into<String>, got: f64) {
        self.range(key, (0.0..1.0).contains(&got), got, "in [0, 1)");
    }

    fn at_least_one(&mut self, key: &str, got: impl Into<Option<u64>>) {
        if let Some(got) = got.into() {
            self.range(key, got >= 1, got, "at least 1");
        }
    }
}

impl RunConfig {
    /// Checks every range and every combination of keys that can be judged
    /// without data or model.
    ///
    /// # Errors
    /// [`Error::Config`], or [`Error::Several`] with every mistake found.
    pub fn validate(&self) -> Result<()> {
        let mut found = Findings::default();
        self.updates(&mut found);
        self.batches(&mut found);
        self.sampling(&mut found);
        self.course(&mut found);
        Error::several(
            "the configuration",
            found.0.into_iter().map(|e| self.locate(e)).collect(),
        )
    }

    /// Checks that everything a run from files alone needs is given.
    ///
    /// # Errors
    /// [`Error::Config`], or [`Error::Several`], naming the missing keys.
    pub fn require_files(&self) -> Result<()> {
        let mut found = Findings::default();
        let model = !self.actor.model.path.as_os_str().is_empty();
        found.require(
            "actor.model.path",
            model,
            "required; set it to a Hugging Face folder or a GGUF file",
        );
        found.require(
            "data.train_files",
            !self.data.train_files.is_empty(),
            "required; set it to one or more JSONL files",
        );
        Error::several("the configuration", found.0)
    }

    fn updates(&self, found: &mut Findings) {
        for (section, optim) in [
            ("actor.optim", &self.actor.optim),
            ("critic.optim", &self.critic.optim),
        ] {
            optimizer(section, optim, found);
        }
        for (key, clip) in [
            ("actor.grad_clip", self.actor.grad_clip),
            ("critic.grad_clip", self.critic.grad_clip),
        ] {
            if let Some(clip) = clip {
                found.range(key, clip > 0.0, clip, "above 0, or null for no clipping");
            }
        }
        self.lora(found);
        found.at_least_one("actor.ppo_epochs", self.actor.ppo_epochs as u64);
        found.at_least_one(
            "critic.ppo_epochs",
            self.critic.ppo_epochs.map(|n| n as u64),
        );
    }

    fn lora(&self, found: &mut Findings) {
        let lora = &self.actor.model.lora;
        let key = |part: &str| format!("actor.model.lora.{part}");
        if let Some((part, why)) = lora.unused() {
            found.require(key(part), false, why);
        }
        found.require(
            "actor.model.quantization",
            lora.enabled() || self.actor.model.quantization == Quantization::None,
            "quantised weights cannot be trained themselves; set actor.model.lora.rank too",
        );
        let alpha = lora.alpha;
        found.range(
            key("alpha"),
            alpha.is_finite() && alpha > 0.0,
            alpha,
            "above 0",
        );
        let dropout = lora.dropout;
        found.range(
            key("dropout"),
            (0.0..1.0).contains(&dropout),
            dropout,
            "in [0, 1)",
        );
    }

    fn batches(&self, found: &mut Findings) {
        let (actor, training) = (&self.actor, &self.training);
        let batch = training.train_batch_size;
        found.at_least_one("training.train_batch_size", batch as u64);
        found.at_least_one(
            "actor.ppo_mini_batch_size",
            actor.ppo_mini_batch_size.map(|n| n as u64),
        );
        found.at_least_one(
            "actor.ppo_micro_batch_size_per_gpu",
            actor.ppo_micro_batch_size_per_gpu.map(|n| n as u64),
        );
        found.at_least_one(
            "training.micro_batch_size",
            training.micro_batch_size.map(|n| n as u64),
        );
        let accumulation = training.gradient_accumulation_steps;
        found.at_least_one(
            "training.gradient_accumulation_steps",
            accumulation.map(|n| n as u64),
        );

        let longest = self.data.max_prompt_length + self.rollout.response_length;
        let budget = actor.ppo_max_token_len_per_gpu;
        found.require(
            "actor.ppo_max_token_len_per_gpu",
            budget >= longest,
            format!(
                "{budget} tokens cannot hold one sequence of data.max_prompt_length {} + rollout.response_length {} = \
                 {longest} tokens; raise it to at least {longest}",
                self.data.max_prompt_length, self.rollout.response_length
            ),
        );
        if let (Some(samples), Some(prompts)) = (
            actor.ppo_micro_batch_size_per_gpu,
            training.micro_batch_size,
        ) {
            found.require(
                "training.micro_batch_size",
                false,
                format!(
                    "{prompts} prompts per micro-batch, and actor.ppo_micro_batch_size_per_gpu gives {samples} samples; \
                     keep one"
                ),
            );
        }
        match (training.micro_batch_size, accumulation, actor.ppo_mini_batch_size) {
            (None, Some(_), _) => found.require(
                "training.gradient_accumulation_steps",
                false,
                "counts micro-batches of training.micro_batch_size prompts, which is not given; set that too, or \
                 actor.ppo_mini_batch_size instead of both",
            ),
            (Some(micro), Some(steps), Some(mini)) => found.require(
                "training.gradient_accumulation_steps",
                micro.saturating_mul(steps) == mini,
                format!(
                    "{steps} micro-batches of training.micro_batch_size {micro} prompts are {} prompts per update, but \
                     actor.ppo_mini_batch_size is {mini}; make them equal or remove one",
                    micro.saturating_mul(steps)
                ),
            ),
            _ => {}
        }
        if let Some(mini) = self.mini_batch_prompts() {
            let key = match actor.ppo_mini_batch_size {
                Some(_) => "actor.ppo_mini_batch_size",
                None => "training.gradient_accumulation_steps",
            };
            found.require(
                key,
                mini <= batch,
                format!("{mini} prompts per update, but training.train_batch_size gives only {batch} per step; lower one or raise the other"),
            );
        }
    }

    /// Prompts per optimizer update, if a key gives them.
    pub(super) fn mini_batch_prompts(&self) -> Option<usize> {
        let training = &self.training;
        let product = training
            .micro_batch_size
            .zip(training.gradient_accumulation_steps);
        self.actor
            .ppo_mini_batch_size
            .or(product.map(|(micro, steps)| micro.saturating_mul(steps)))
    }

    fn sampling(&self, found: &mut Findings) {
        let rollout = &self.rollout;
        let val = &rollout.val_kwargs;
        found.at_least_one("rollout.n", rollout.n as u64);
        found.at_least_one("rollout.response_length", rollout.response_length as u64);
        found.at_least_one("rollout.max_num_seqs", rollout.max_num_seqs as u64);
        found.at_least_one("rollout.val_kwargs.n", val.n as u64);
        found.range(
            "rollout.min_p",
            (0.0..=1.0).contains(&rollout.min_p),
            rollout.min_p,
            "in [0, 1]",
        );
        for (section, temperature, top_k, top_p) in [
            ("rollout", rollout.temperature, rollout.top_k, rollout.top_p),
            ("rollout.val_kwargs", val.temperature, val.top_k, val.top_p),
        ] {
            let sane = temperature.is_finite() && temperature >= 0.0;
            found.range(
                format!("{section}.temperature"),
                sane,
                temperature,
                "0 (greedy) or a positive number",
            );
            found.range(
                format!("{section}.top_k"),
                top_k >= -1,
                top_k,
                "at least 1, or 0 or -1 for all tokens",
            );
            found.range(
                format!("{section}.top_p"),
                top_p > 0.0 && top_p <= 1.0,
                top_p,
                "in (0, 1]",
            );
        }
        found.require(
            "rollout.temperature",
            rollout.temperature != 0.0 || rollout.n == 1,
            format!(
                "0 is greedy, so all rollout.n {} samples of a prompt would be the same; raise it",
                rollout.n
            ),
        );
        let greedy = rollout.val_sampling().temperature == 0.0;
        found.require(
            "rollout.val_kwargs.n",
            !greedy || val.n <= 1,
            format!("{} greedy answers to one prompt are all the same; set it to 1 or give a temperature", val.n),
        );
        found.require(
            "rollout.val_kwargs.do_sample",
            val.do_sample != Some(true) || val.temperature != 0.0,
            "asks for sampling, but rollout.val_kwargs.temperature is 0, which is greedy; set a temperature",
        );
        let empty = rollout.stop.iter().any(String::is_empty);
        found.require(
            "rollout.stop",
            !empty,
            "an empty stop text would end every answer at once; remove it",
        );
    }

    fn course(&self, found: &mut Findings) {
        let (data, reward, training, tracking) =
            (&self.data, &self.reward, &self.training, &self.tracking);
        found.require(
            "output_dir",
            !self.output_dir.as_os_str().is_empty(),
            "is empty; name a folder",
        );
        found.require(
            "algorithm.name",
            !self.algorithm.name.is_empty(),
            "is empty; name an algorithm, such as grpo",
        );
        found.require(
            "data.prompt_key",
            !data.prompt_key.is_empty(),
            "is empty; name the field of the prompt",
        );
        found.require(
            "data.answer_key",
            !data.answer_key.is_empty(),
            "is empty; name the field of the answer",
        );
        found.at_least_one("data.max_prompt_length", data.max_prompt_length as u64);
        found.require(
            "reward.name",
            !reward.name.is_empty(),
            "is empty; name a reward function, such as gsm8k",
        );
        found.range(
            "reward.timeout_s",
            reward.timeout_s > 0.0,
            reward.timeout_s,
            "above 0",
        );
        found.at_least_one("reward.workers", reward.workers.map(|n| n as u64));
        let share = reward.max_failure_fraction;
        found.range(
            "reward.max_failure_fraction",
            (0.0..=1.0).contains(&share),
            share,
            "in [0, 1]",
        );
        found.at_least_one("training.total_steps", training.total_steps);
        found.at_least_one("training.max_epochs", training.max_epochs);
        found.at_least_one(
            "training.val_samples",
            training.val_samples.map(|n| n as u64),
        );
        found.at_least_one(
            "training.keep_checkpoints",
            training.keep_checkpoints.map(|n| n as u64),
        );
        for (key, frequency) in [
            ("training.test_freq", training.test_freq),
            ("training.save_freq", training.save_freq),
        ] {
            found.range(
                key,
                frequency >= -1,
                frequency,
                "at least 1, or 0 or -1 for only at the end",
            );
        }
        found.require(
            "tracking.report",
            !tracking.report || tracking.metrics_jsonl,
            "needs tracking.metrics_jsonl, whose figures it draws; turn that on or this off",
        );
    }
}

fn optimizer(section: &str, optim: &OptimConfig, found: &mut Findings) {
    let key = |name: &str| format!("{section}.{name}");
    found.range(key("lr"), optim.lr >= 0.0, optim.lr, "0 or positive");
    found.range(
        key("weight_decay"),
        optim.weight_decay >= 0.0,
        optim.weight_decay,
        "0 or positive",
    );
    for (name, betas) in [("betas", optim.betas), ("lion.betas", optim.lion.betas)] {
        for (i, beta) in betas.into_iter().enumerate() {
            found.share(key(&format!("{name}[{i}]")), beta);
        }
    }
    found.range(key("eps"), optim.eps > 0.0, optim.eps, "above 0");
    own_options(section, optim, found);
    found.range(
        key("min_lr_ratio"),
        (0.0..=1.0).contains(&optim.min_lr_ratio),
        optim.min_lr_ratio,
        "in [0, 1]",
    );
    if let Some(ratio) = optim.warmup_ratio {
        found.range(
            key("warmup_ratio"),
            (0.0..=1.0).contains(&ratio),
            ratio,
            "in [0, 1]",
        );
        found.require(
            key("warmup_ratio"),
            optim.warmup_steps.is_none(),
            format!(
                "a warm-up of {} steps is given too, as warmup_steps; keep one",
                optim.warmup_steps.unwrap_or(0)
            ),
        );
    }
}

/// The options of single optimizers, which others must not be given.
fn own_options(section: &str, optim: &OptimConfig, found: &mut Findings) {
    let key = |name: &str| format!("{section}.{name}");
    let factor = &optim.adafactor;
    for (name, value) in [
        ("adafactor.decay_exponent", factor.decay_exponent),
        ("adafactor.clip_threshold", factor.clip_threshold),
        ("adafactor.eps", factor.eps),
    ] {
        found.range(key(name), value > 0.0, value, "above 0");
    }
    found.share(key("muon.momentum"), optim.muon.momentum);
    found.at_least_one(&key("muon.steps"), optim.muon.steps as u64);
    for restricted in optim.restricted() {
        let readers: Vec<_> = restricted.readers.iter().map(|kind| kind.name()).collect();
        found.require(
            key(restricted.key),
            !restricted.changed || restricted.readers.contains(&optim.name),
            format!(
                "`{}` does not read it, only {} {}; remove the key",
                optim.name.name(),
                readers.join(", "),
                if readers.len() == 1 { "does" } else { "do" },
            ),
        );
    }
}
