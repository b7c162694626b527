"""Stands for torch._C."""

import os


def _cuda_getAllocatorBackend():
    return "native" if "backend:native" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") else "cudaMallocAsync"
