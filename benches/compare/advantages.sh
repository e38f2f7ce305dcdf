#!/usr/bin/env bash
# Advantage estimators here and in verl 0.9.1, on the same inputs in one run.
#
#   python3 -m venv venv && venv/bin/pip install torch verl==0.9.1
#   PYTHON=venv/bin/python benches/compare/advantages.sh [--repeats N] [--threads N]
#
# Both sides compute 1 024 answers of 4 096 tokens. Prints the median
# milliseconds of both (torch on one thread unless --threads says otherwise),
# their ratio, and how far the advantages lie apart.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python3}
target=${CARGO_TARGET_DIR:-target}
cargo build --release --quiet -p verl-benches --bin compare_advantages
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$target/release/compare_advantages" --out "$out"
"$python" benches/compare/advantages.py "$out" "$@"
