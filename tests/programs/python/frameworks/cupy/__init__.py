"""Stands for CuPy: what the hook of `--pool on` uses of it, with its names. BROKEN in the environment says what fails."""

import os

from . import cuda

if os.environ.get("BROKEN") == "import":
    raise ImportError("no CUDA")


def ask(size):
    """As cupy.ndarray asks for its memory."""
    return cuda.get_allocator()(size)
