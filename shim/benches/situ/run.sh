#!/usr/bin/env bash
# Builds the preload library and prints the tables of train.py. PYTHON must be able to import torch (a CPU is enough).
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
python="${PYTHON:-python3}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/../../../target/situ}"
cargo build --release --locked --quiet --manifest-path "$here/Cargo.toml"
"$python" -c "import torch" || { echo "PYTHON=$python can't import torch" >&2; exit 2; }
# Threads that wait by spinning make each other's figures wrong where there are few cores.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
export PYTHONDONTWRITEBYTECODE=1
say() { printf '\n== %s\n' "$*"; }
train() { LD_PRELOAD="$CARGO_TARGET_DIR/release/libsitu.so" "$python" "$here/train.py" "$@"; }

say "costs"
train
say "check: ours against libgcc's, at each allocation"
train --check
say "signal: the same at arbitrary instructions"
train --signal
