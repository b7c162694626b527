#!/usr/bin/env bash
# All that CI does: format, lints, every test on the simulated GPU, documentation. Stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
need cargo "Rust: https://rustup.rs" gcc gcc g++ g++ make make objcopy binutils python3 python3
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
# Built once, so what a second build would reuse is only disk space.
export CARGO_INCREMENTAL=0
say() { printf '\n== %s\n' "$*"; }

say "format"
cargo fmt --all --check
say "lints"
cargo clippy --workspace --all-targets --locked -- -D warnings
say "build"
cargo build --workspace --locked
make --silent -C tests/simgpu OUT="$PWD/target/simgpu"
say "tests"
# All that fails, not only the first: a machine far away is asked seldom.
cargo test --workspace --locked --no-fail-fast
say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --document-private-items
say "all passed"
