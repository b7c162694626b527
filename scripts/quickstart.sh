#!/usr/bin/env bash
# Builds vramscope and runs its main job once: a CUDA program under it, down to a report. On the GPU if there is one, else on
# the simulated one. Usage: scripts/quickstart.sh [FOLDER FOR THE HISTORY]
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
. scripts/need.sh
need cargo "Rust: https://rustup.rs" gcc gcc g++ g++ make make objcopy binutils

out=${1:-target/quickstart}
# A folder is given from where one stands.
[ -z "${1:-}" ] || case $out in /*) ;; *) out=$here/$out ;; esac
mkdir -p "$out"
out=$(cd "$out" && pwd)
say() { printf '\n== %s\n' "$*"; }

say "Building (a first build takes some minutes)"
cargo build --release --workspace --quiet
gcc -g -O1 -o "$out/program" scripts/quickstart.c -ldl

if [ -e /dev/nvidiactl ] && ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    say "Running scripts/quickstart.c on this machine's NVIDIA GPU"
else
    say "No NVIDIA GPU here: running scripts/quickstart.c on the simulated one (tests/simgpu)"
    make --silent -C tests/simgpu OUT="$PWD/target/simgpu"
    export LD_LIBRARY_PATH="$PWD/target/simgpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
rm -f "$out/history.jsonl"
target/release/vramscope run --trace "$out/history.jsonl" -- "$out/program"

say "vramscope report $out/history.jsonl"
target/release/vramscope report "$out/history.jsonl"
say "Next: target/release/vramscope run -- YOUR_PROGRAM"
