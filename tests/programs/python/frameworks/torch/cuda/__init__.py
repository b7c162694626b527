"""Stands for torch.cuda."""

from . import memory  # noqa: F401

initialized = False


def is_initialized():
    return initialized
