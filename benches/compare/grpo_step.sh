#!/usr/bin/env bash
# A whole GRPO step here and with TRL on torch CPU, alternating, in one run.
#
#   python3 -m venv venv && venv/bin/pip install torch transformers==5.24.0 trl==1.16.0 datasets
#   PYTHON=venv/bin/python benches/compare/grpo_step.sh TOKENIZER_DIR [STEPS] [more options of both]
#
# Each side runs STEPS + 1 steps in a process of its own; the first is warm-up.
# Prints the median seconds of both and their ratio.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tokenizer=$1
steps=${2:-5}
shift $(($# < 2 ? $# : 2))
python=${PYTHON:-python3}
target=${CARGO_TARGET_DIR:-target}
cargo build --release --quiet -p verl-benches --bin grpo_step
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
sizes=(--tokenizer "$tokenizer" --steps $((steps + 1)) "$@")
"$target/release/grpo_step" "${sizes[@]}" --bypass > "$out/verl.jsonl"
"$python" benches/compare/trl_grpo_step.py "${sizes[@]}" 2>/dev/null | grep '^{' > "$out/trl.jsonl"
"$python" - "$out" <<'PY'
import json, statistics, sys
def rows(name):
    return [json.loads(line) for line in open(f"{sys.argv[1]}/{name}.jsonl")][1:]
ours, trl = rows("verl"), rows("trl")
for key in ("sampling_s", "step_s"):
    a, b = (statistics.median(r[key] for r in side) for side in (ours, trl))
    print(f"{key:12} verl {a:8.2f}   trl {b:8.2f}   trl / verl {b / a:5.2f}")
PY
