#!/usr/bin/env bash
# Runs a command so that a CUDA build of PyTorch finds the simulated GPU.
#
#   run.sh COMMAND...        PYTHON: a Python that has torch, default python3
#
# The simulator and the stand-ins are built first, into BUILD (default: target/simtorch of the repository). README.md beside this
# file says what is real in such a run. SIMGPU_* settings are passed on; what is not set becomes one H200.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-$here/../../../target/simtorch}
python=${PYTHON:-python3}
torch=$("$python" -c 'import importlib.util as i; print(i.find_spec("torch").submodule_search_locations[0])')
mkdir -p "$build"
build=$(cd "$build" && pwd)
make --no-print-directory -s -C "$here/.." OUT="$build/simgpu" CXXFLAGS="-O2 -g"
# One folder a PyTorch: its name is that of its version file.
stubs=$build/stubs-$(cksum <"$torch/version.py" | tr ' ' -)
(
    flock 9
    for source in "$here"/stubs.py "$here"/hand.[ch]; do [ "$stubs/made" -nt "$source" ] || rm -f "$stubs/made"; done
    [ -e "$stubs/made" ] || { rm -rf "$stubs" && "$python" "$here/stubs.py" "$torch" "$stubs" >&2 && touch "$stubs/made"; }
) 9>"$build/lock"
export SIMGPU_ANY_KERNEL=${SIMGPU_ANY_KERNEL:-1} SIMGPU_DEVICES=${SIMGPU_DEVICES:-1} SIMGPU_MEMORY_MB=${SIMGPU_MEMORY_MB:-143771}
export LD_LIBRARY_PATH=$build/simgpu:$stubs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$@"
