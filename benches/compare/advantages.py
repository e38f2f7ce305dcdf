"""Times verl's advantage functions on the inputs that `compare_advantages` wrote,
and prints both sides: medians, their ratio, and the largest difference of the
advantages at the policy's tokens."""

import argparse
import json
import pathlib
import statistics
import time
from types import SimpleNamespace

import numpy as np
import torch
from verl.trainer.ppo import core_algos as verl

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--repeats", type=int, default=5)
parser.add_argument("--threads", type=int, default=1)
args = parser.parse_args()
torch.set_num_threads(args.threads)

ours = json.loads((args.folder / "verl_rust.json").read_text())
rows, tokens = ours["shape"]


def read(name):
    numbers = np.fromfile(args.folder / f"{name}.f32", dtype="<f4")
    return torch.from_numpy(numbers.reshape(rows, tokens))


mask = read("mask").long()
live = mask.bool()
index = np.repeat(np.arange(rows // ours["samples"]), ours["samples"])
rewards = read("token_rewards")
common = {"token_level_rewards": rewards, "response_mask": mask}
grouped = {**common, "index": index}
uncertain = {
    **grouped,
    "old_log_probs": read("old_log_probs"),
    "sum_pi_squared": read("sum_pi_squared"),
}

# The parts of the reward, as the trainer hands them to GDPO.
parts = {
    "config": {"gdpo_reward_keys": ["right", "short"]},
    "non_tensor_batch": {},
    "batch": {
        "prompts": torch.ones(rows, 1),
        "attention_mask": torch.ones(rows, tokens + 1, dtype=torch.long),
    },
}
seeds = np.arange(rows, dtype=np.uint32)
for offset, key in enumerate(parts["config"]["gdpo_reward_keys"], 1):
    noise = (((seeds + np.uint32(offset)) * np.uint32(2654435761)) >> 8) / np.float32(1 << 24)
    parts["non_tensor_batch"][key] = noise.astype(np.float32)

undiscounted = SimpleNamespace(gamma=1.0)
functions = {
    "gae": lambda: verl.compute_gae_advantage_return(
        rewards, read_values, mask, gamma=1.0, lam=0.95
    ),
    "grpo": lambda: verl.compute_grpo_outcome_advantage(**grouped),
    "grpo (vectorised)": lambda: verl.compute_grpo_vectorized_outcome_advantage(**grouped),
    "gdpo": lambda: verl.compute_gdpo_outcome_advantage(**grouped, **parts),
    "grpo_passk": lambda: verl.compute_grpo_passk_outcome_advantage(
        **grouped, config=SimpleNamespace(get=lambda key, default: default)
    ),
    "reinforce_plus_plus_baseline": lambda: (
        verl.compute_reinforce_plus_plus_baseline_outcome_advantage(**grouped)
    ),
    "rloo": lambda: verl.compute_rloo_outcome_advantage(**grouped),
    "rloo (vectorised)": lambda: verl.compute_rloo_vectorized_outcome_advantage(**grouped),
    "opo": lambda: verl.compute_opo_outcome_advantage(**grouped),
    "reinforce_plus_plus": lambda: verl.compute_reinforce_plus_plus_outcome_advantage(
        **common, config=undiscounted
    ),
    "remax": lambda: verl.compute_remax_outcome_advantage(
        **common, reward_baselines=torch.ones(rows)
    ),
    "gpg": lambda: verl.compute_gpg_outcome_advantage(**grouped),
    "optimal_token_baseline": lambda: verl.compute_multi_turn_optimal_token_baseline_advantage(
        **uncertain
    ),
}
read_values = read("values")

print(f"{rows} answers of {tokens} tokens, torch {torch.__version__}, {args.threads} thread(s)")
print("| function | verl for Rust, ms | verl 0.9.1, ms | ratio | largest difference |")
print("|---|---|---|---|---|")
for name, function in functions.items():
    theirs, _ = function()
    seconds = []
    for _ in range(args.repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    estimator = name.split(" ")[0]
    difference = (theirs - read(estimator)).abs()[live].max().item()
    mine, other = statistics.median(ours["seconds"][estimator]), statistics.median(seconds)
    print(
        f"| {name} | {1e3 * mine:.1f} | {1e3 * other:.1f} | {other / mine:.1f} | {difference:.0e} |",
        flush=True,
    )
