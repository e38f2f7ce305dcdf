//! Every key with its type, unit, default and meaning: the one table behind
//! the documentation and the search for misspelt keys.

/// Documentation of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyDoc<'a> {
    /// Dotted path.
    pub path: &'a str,
    /// Kind of value: `integer`, `number`, `boolean`, `text`, `path`, a list
    /// of these, or the choices separated by `|`.
    pub ty: &'a str,
    /// What the number counts; empty where it counts nothing.
    pub unit: &'a str,
    /// The default, as it would be written in YAML.
    pub default: &'a str,
    /// Meaning.
    pub doc: &'a str,
}

const fn key(
    path: &'static str,
    ty: &'static str,
    unit: &'static str,
    default: &'static str,
    doc: &'static str,
) -> KeyDoc<'static> {
    KeyDoc {
        path,
        ty,
        unit,
        default,
        doc,
    }
}

const DTYPES: &str = "float32 | bfloat16 | float16";
const OPTIMIZERS: &str = "adamw | adamw_8bit | adafactor | lion | muon";
const SCHEDULES: &str = "constant | linear | cosine";
pub(super) const OPTIONS: &str = "section";

/// Every key of a configuration, in the order of the documentation.
#[rustfmt::skip]
pub const KEYS: &[KeyDoc<'static>] = &[
    key("seed", "integer", "", "1", "Seed of everything random. The same seed, configuration and device give the same run."),
    key("output_dir", "path", "", "runs/default", "Folder of checkpoints, metrics, completions, the resolved `config.yaml`, `summary.json` and `report.html`."),
    key("actor.model.path", "path", "", "\"\"", "Model to train: a Hugging Face folder or a GGUF file. Required unless the program brings its own model."),
    key("actor.model.dtype", DTYPES, "", "float32", "Number format of the weights in memory. Short forms such as `bf16` are understood."),
    key("actor.model.kernels", "fused | plain", "", "fused", "What runs the layers of actor and critic: the library's own kernels where they can serve (dense float32 layers on the CPU), or burn's operations everywhere."),
    key("actor.model.checkpoint_every", "integer", "layers", "0", "Layers of actor and critic whose activations are kept at a time for the backward pass. 1 takes the least memory and runs the forward pass twice; 0 keeps all and repeats nothing."),
    key("actor.model.lora.rank", "integer", "", "0", "Trains a low-rank adapter of this inner dimension (LoRA) and freezes the model; checkpoints then hold the adapter alone, in the form of `peft`, and the reference policy is the model without it. 0 trains every weight. The critic's too, whose value head is trained as well."),
    key("actor.model.lora.alpha", "number", "", "16.0", "Strength of the adapter: its update is scaled by `alpha / rank`."),
    key("actor.model.lora.dropout", "number", "share of inputs", "0.0", "Inputs of the adapter dropped in updates; sampling and log-probs drop none."),
    key("actor.model.lora.rslora", "boolean", "", "false", "Scale by `alpha / sqrt(rank)` instead, which keeps large ranks learning."),
    key("actor.model.lora.target_modules", "text or list of text", "", "all-linear", "Projections with an adapter: all, a list of names (`q_proj`) or ends of names, or a regular expression for the whole name."),
    key("actor.model.lora.exclude_modules", "list of text", "", "[]", "Names, or ends of names, of projections without adapter."),
    key("actor.model.lora.adapter_path", "path or null", "", "null", "Folder of an existing adapter to go on from; its rank, strength and targets are kept."),
    key("actor.optim.name", OPTIMIZERS, "", "adamw", "The optimizer; [memory.md](memory.md#optimizers) says what each costs. A key that it does not read is refused."),
    key("actor.optim.lr", "number", "", "1e-6", "Peak learning rate."),
    key("actor.optim.weight_decay", "number", "", "0.01", "Decoupled weight decay, in units of the learning rate, with every optimizer."),
    key("actor.optim.betas", "list of 2 numbers", "", "[0.9, 0.999]", "Decay of AdamW's running mean and running square: `adamw`, `adamw_8bit`, and what `muon` leaves to AdamW."),
    key("actor.optim.eps", "number", "", "1e-8", "Added to AdamW's denominator: `adamw`, `adamw_8bit`, and what `muon` leaves to AdamW."),
    key("actor.optim.adafactor.decay_exponent", "number", "", "0.8", "`c` in the decay `1 - t^-c` of the running square at update `t`."),
    key("actor.optim.adafactor.clip_threshold", "number", "", "1.0", "Largest root mean square of a tensor's update, in units of the learning rate."),
    key("actor.optim.adafactor.eps", "number", "", "1e-30", "Added to the squared gradient."),
    key("actor.optim.lion.betas", "list of 2 numbers", "", "[0.9, 0.99]", "Share of the momentum in an update, and decay of the momentum."),
    key("actor.optim.muon.momentum", "number", "", "0.95", "Decay of the Nesterov momentum."),
    key("actor.optim.muon.steps", "integer", "iterations", "5", "Newton-Schulz iterations per update."),
    key("actor.optim.lr_schedule", SCHEDULES, "", "constant", "Course of the learning rate after the warm-up, counted in optimizer updates."),
    key("actor.optim.warmup_steps", "integer or null", "optimizer updates", "null", "Linear rise of the learning rate from 0. Not together with `warmup_ratio`."),
    key("actor.optim.warmup_ratio", "number or null", "share of all updates", "null", "The same as a share of the run. Not together with `warmup_steps`."),
    key("actor.optim.min_lr_ratio", "number", "share of `lr`", "0.0", "Learning rate at the end of a `linear` or `cosine` schedule."),
    key("actor.grad_clip", "number or null", "gradient norm", "1.0", "The gradient is scaled down to this global L2 norm, taken over all parameters together. `null` does not clip."),
    key("actor.ppo_epochs", "integer", "passes", "1", "Passes over each rollout batch."),
    key("actor.ppo_mini_batch_size", "integer or null", "prompts", "null", "Prompts per optimizer update, each with all its samples. `null` takes the whole train batch. When it does not divide the train batch the last update of a pass has fewer prompts, and its loss is averaged over those."),
    key("actor.ppo_max_token_len_per_gpu", "integer", "tokens", "16384", "Tokens per micro-batch, prompts included. Changes memory and speed, never the gradient."),
    key("actor.ppo_micro_batch_size_per_gpu", "integer or null", "samples", "null", "Most samples per micro-batch, on top of the token limit."),
    key("critic.model.path", "path or null", "", "null", "Model that becomes the critic. `null` takes `actor.model.path`."),
    key("critic.model.dtype", "float32 | bfloat16 | float16 | null", "", "null", "Number format of the critic's weights. `null` takes `actor.model.dtype`."),
    key("critic.optim.name", OPTIMIZERS, "", "adamw", "As `actor.optim.name`."),
    key("critic.optim.lr", "number", "", "1e-5", "As `actor.optim.lr`."),
    key("critic.optim.weight_decay", "number", "", "0.01", "As `actor.optim.weight_decay`."),
    key("critic.optim.betas", "list of 2 numbers", "", "[0.9, 0.999]", "As `actor.optim.betas`."),
    key("critic.optim.eps", "number", "", "1e-8", "As `actor.optim.eps`."),
    key("critic.optim.adafactor.decay_exponent", "number", "", "0.8", "As `actor.optim.adafactor.decay_exponent`."),
    key("critic.optim.adafactor.clip_threshold", "number", "", "1.0", "As `actor.optim.adafactor.clip_threshold`."),
    key("critic.optim.adafactor.eps", "number", "", "1e-30", "As `actor.optim.adafactor.eps`."),
    key("critic.optim.lion.betas", "list of 2 numbers", "", "[0.9, 0.99]", "As `actor.optim.lion.betas`."),
    key("critic.optim.muon.momentum", "number", "", "0.95", "As `actor.optim.muon.momentum`."),
    key("critic.optim.muon.steps", "integer", "iterations", "5", "As `actor.optim.muon.steps`."),
    key("critic.optim.lr_schedule", SCHEDULES, "", "constant", "As `actor.optim.lr_schedule`."),
    key("critic.optim.warmup_steps", "integer or null", "optimizer updates", "null", "As `actor.optim.warmup_steps`."),
    key("critic.optim.warmup_ratio", "number or null", "share of all updates", "null", "As `actor.optim.warmup_ratio`."),
    key("critic.optim.min_lr_ratio", "number", "share of `lr`", "0.0", "As `actor.optim.min_lr_ratio`."),
    key("critic.grad_clip", "number or null", "gradient norm", "1.0", "As `actor.grad_clip`."),
    key("critic.ppo_epochs", "integer or null", "passes", "null", "Passes of the critic over each rollout batch. `null` takes `actor.ppo_epochs`."),
    key("algorithm.name", "text", "", "grpo", "Name of a registered algorithm. Every other key of this section is the algorithm's own."),
    key("rollout.n", "integer", "samples per prompt", "8", "Answers sampled for each prompt."),
    key("rollout.temperature", "number", "", "1.0", "Divides the logits, in sampling and in the log-probs that are trained on."),
    key("rollout.top_k", "integer", "tokens", "0", "Keep the `k` most likely tokens. 0 or -1 keeps all."),
    key("rollout.top_p", "number", "probability", "1.0", "Keep the smallest set of most likely tokens whose probability reaches `p`, the crossing token included."),
    key("rollout.min_p", "number", "share of the highest probability", "0.0", "Drop tokens less likely than this share of the most likely one."),
    key("rollout.response_length", "integer", "tokens", "256", "Most tokens of an answer."),
    key("rollout.stop", "list of text", "", "[]", "Texts that end an answer, besides the model's own stop tokens."),
    key("rollout.max_num_seqs", "integer", "samples", "64", "Answers sampled at the same time. Changes memory and speed, never the answers."),
    key("rollout.dtype", DTYPES, "", "float32", "Number format of the weights that answers are sampled with. `bfloat16` halves the memory read per token on the CPU; sampler and policy then differ a little, which `rollout.reuse_log_probs` notices and `algorithm.rollout_correction` corrects."),
    key("rollout.reuse_log_probs", "number or null", "nats", "1e-3", "Take the sampler's log-probs as the old ones of the update instead of computing them again. One answer in sixteen is computed; where one of its log-probs differs by more than this, all are. `null` always computes all."),
    key("rollout.val_kwargs.n", "integer", "samples per prompt", "1", "Answers per prompt in validation."),
    key("rollout.val_kwargs.temperature", "number", "", "0.0", "Temperature in validation. 0 is greedy."),
    key("rollout.val_kwargs.top_k", "integer", "tokens", "0", "As `rollout.top_k`, in validation."),
    key("rollout.val_kwargs.top_p", "number", "probability", "1.0", "As `rollout.top_p`, in validation."),
    key("rollout.val_kwargs.do_sample", "boolean or null", "", "null", "`false` is greedy whatever the temperature. `null` goes by the temperature."),
    key("data.train_files", "path or list of paths", "", "[]", "JSONL files of training prompts."),
    key("data.val_files", "path or list of paths", "", "[]", "JSONL files of validation prompts."),
    key("data.prompt_key", "text", "", "prompt", "Field of a row that holds the prompt."),
    key("data.answer_key", "text", "", "answer", "Field of a row that holds the right answer."),
    key("data.answer_after", "text or null", "", "null", "The right answer is what follows this text in its field, `####` in GSM8K. `null` takes the whole field."),
    key("data.system_prompt", "text or null", "", "null", "System message before each prompt."),
    key("data.prompt_template", "text or null", "", "null", "Text with `{prompt}` where the row's prompt goes. `null` takes the prompt as it is."),
    key("data.max_prompt_length", "integer", "tokens", "512", "Most tokens of a prompt, measured after the chat template."),
    key("data.truncation", "error | left | right | filter", "", "error", "What happens to a longer prompt: stop with its row's number, drop tokens at its beginning or end, or leave the row out. What was cut or left out is counted."),
    key("data.shuffle", "boolean", "", "true", "Draw the training prompts in a new order each epoch."),
    key("data.skip_bad_rows", "boolean", "", "false", "Leave out rows that cannot be read, with a count, instead of stopping."),
    key("reward.name", "text", "", "gsm8k", "Name of a registered reward function."),
    key("reward.timeout_s", "number", "seconds", "10.0", "Time one answer may take to score."),
    key("reward.workers", "integer or null", "threads", "null", "Threads that score. `null` takes one per CPU core."),
    key("reward.max_failure_fraction", "number", "share of a step's answers", "0.2", "The run stops when more answers than this cannot be scored."),
    key("reward.options", OPTIONS, "", "{}", "The reward function's own options."),
    key("training.train_batch_size", "integer", "prompts", "32", "Prompts per step. A step samples `rollout.n` answers for each."),
    key("training.micro_batch_size", "integer or null", "prompts", "null", "Most prompts per micro-batch, each with all its samples. Not together with `actor.ppo_micro_batch_size_per_gpu`, which counts samples."),
    key("training.gradient_accumulation_steps", "integer or null", "micro-batches", "null", "Micro-batches of `training.micro_batch_size` prompts per optimizer update; their product is the mini-batch in prompts."),
    key("training.total_steps", "integer or null", "steps", "null", "Length of the run. With `max_epochs` too, the shorter one counts; with neither, the run is one epoch."),
    key("training.max_epochs", "integer or null", "epochs", "null", "Length of the run in passes over the training prompts."),
    key("training.critic_warmup", "integer or null", "steps", "null", "Steps at the start in which only the critic is trained; unset leaves it to the algorithm."),
    key("training.test_freq", "integer", "steps", "10", "Validate every so many steps, and after the last. 0 or -1: only after the last."),
    key("training.val_before_train", "boolean", "", "true", "Validate before the first step."),
    key("training.val_samples", "integer or null", "prompts", "null", "Validation prompts used, from the first. `null` takes all."),
    key("training.save_freq", "integer", "steps", "20", "Save a checkpoint every so many steps, and after the last. 0 or -1: only after the last."),
    key("training.keep_checkpoints", "integer or null", "checkpoints", "2", "Newest checkpoints kept. `null` keeps all."),
    key("training.resume", "auto | never | path", "", "auto", "`auto` goes on from the newest whole checkpoint in `output_dir`, `never` starts anew, a path goes on from that checkpoint."),
    key("training.max_skipped_updates", "integer", "updates", "5", "Updates in a row that may be skipped for a gradient that is not finite; one more saves a checkpoint and stops the run."),
    key("training.log_completions", "integer", "answers per step", "4", "Answers written to `completions.jsonl`."),
    key("device.kind", "flex | cuda | rocm | wgpu | vulkan | metal | webgpu", "", "flex", "What computes. `flex` is the CPU; the others need the build feature of their name."),
    key("device.index", "integer", "", "0", "Number of the device among those of its kind."),
    key("tracking.progress", "boolean", "", "true", "Progress bar, or one log line per step where there is no terminal."),
    key("tracking.metrics_jsonl", "boolean", "", "true", "Write `metrics.jsonl`, one line per step."),
    key("tracking.tensorboard", "boolean", "", "true", "Write TensorBoard event files under `tensorboard/`."),
    key("tracking.completions", "boolean", "", "true", "Write `completions.jsonl`."),
    key("tracking.report", "boolean", "", "true", "Write `report.html` at the end. Needs `tracking.metrics_jsonl`."),
];
