"""Stands for PyTorch: what vramscope.torch uses of it, with its names."""

from . import cuda  # noqa: F401
