#!/usr/bin/env bash
# Decoding and updates here and with transformers on torch CPU, one after the
# other in one run. Prints medians and ratios as a Markdown table.
#
#   python3 -m venv venv && venv/bin/pip install torch transformers==5.24.0
#   PYTHON=venv/bin/python benches/compare/engine.sh [REPETITIONS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
repeat=$((${1:-5} + 1))
python=${PYTHON:-python3}
target=${CARGO_TARGET_DIR:-target}
engine=${ENGINE:-$target/release/engine}
[ -x "$engine" ] || cargo build --release --quiet -p verl-benches --bin engine
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

side_by_side() { # name, options of both
    local name=$1
    shift
    "$engine" --repeat "$repeat" "$@" > "$out/verl"
    "$python" benches/compare/torch_engine.py --repeat "$repeat" "$@" 2> /dev/null > "$out/torch"
    "$python" - "$name" "$out" <<'PY'
import json, statistics, sys
name, out = sys.argv[1:]
rows = {side: [json.loads(line) for line in open(f"{out}/{side}")] for side in ("verl", "torch")}
rate = {s: statistics.median(r["tokens_per_s"] for r in rs[1:]) for s, rs in rows.items()}
peak = {s: rs[-1]["peak_mib"] for s, rs in rows.items()}
print(f"| {name} | {rate['verl']:.0f} | {rate['torch']:.0f} | {rate['verl'] / rate['torch']:.2f} | {peak['verl']} | {peak['torch']} |", flush=True)
PY
}

echo "| | verl, tokens/s | torch | ratio | verl, peak MiB | torch |"
echo "|---|---|---|---|---|---|"
side_by_side "update, 8 x (384 + 128)" --what update --prompt-len 384
side_by_side "update, 8 x (384 + 128), one prompt" --what update --prompt-len 384 --shared
side_by_side "update, vocabulary 151,936" --what update --prompt-len 384 --vocab 151936 --layers 8
side_by_side "decode, 1 row" --what decode --rows 1
side_by_side "decode, 8 rows" --what decode --rows 8
side_by_side "decode, 32 rows" --what decode --rows 32
