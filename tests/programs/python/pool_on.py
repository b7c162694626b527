"""Whom `--pool on` asks, and how: prints what the frameworks would read, and asks a stand-in of CuPy for memory."""

import os
import subprocess
import sys

for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_PREALLOCATE"):
    print(name, os.environ.get(name))
# Nothing of ours stays in sight, and nothing was imported for it.
print("cupy" in sys.modules, "ctypes" in sys.modules, [p for p in sys.path if "vramscope." in p and "test" not in p])

case = sys.argv[1]
if case == "looked for":
    import importlib.util

    print(importlib.util.find_spec("cupy") is not None)
try:
    import cupy
    from cupy import cuda

    if case == "own":
        cuda.set_allocator(lambda size: "own %d" % size)
    print([cupy.ask(10), cupy.ask(20), type(cupy.__spec__.loader).__name__, vars(cupy.__spec__.loader).get("exec_module")])
    try:
        print(cupy.ask(2000))
    except cuda.memory.OutOfMemoryError as e:
        print("out of memory", e)
except ImportError as e:
    print("not imported:", e)

if case == "child":
    words = [sys.executable, __file__, "grandchild"]
    sys.stdout.flush()
    print(subprocess.call(words, env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}))
