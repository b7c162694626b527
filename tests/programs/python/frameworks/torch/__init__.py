"""Stands for PyTorch: what vramscope.torch and the hook of `--pool on` use of it, with its names."""

from . import _C, cuda  # noqa: F401
