"""PyTorch on vramscope's pool, chosen in code: its pluggable allocator, with vramscope's functions behind it.

    import vramscope.torch
    vramscope.torch.use()                                # before the first use of CUDA

``vramscope run --pool on`` asks nothing of the code and keeps PyTorch's memory statistics. With the pluggable interface
PyTorch has none: ``memory_stats``, ``memory_allocated``, ``memory_snapshot`` and cuDNN's benchmark mode raise an error, and
``vramscope.stats`` tells instead. A part of a program can have it, too, with the statistics:

    pool = torch.cuda.MemPool(vramscope.torch.allocator().allocator())
    with torch.cuda.use_mem_pool(pool): ...
"""

import os

from ._library import ctypes, library

# The setters of PyTorch's allocator, with the functions of ours that they get. Which there are varies with its version.
_FUNCTIONS = {
    "set_init_fn": "vramscope_torch_init",
    "set_reset_fn": "vramscope_torch_reset",
    "set_memory_fraction_fn": "vramscope_torch_memory_fraction",
    "set_base_alloc_fn": "vramscope_torch_base",
    "set_record_stream_fn": "vramscope_torch_record_stream",
    "set_begin_allocate_to_pool": "vramscope_torch_begin_pool",
    "set_end_allocate_to_pool_fn": "vramscope_torch_end_pool",
    "set_release_pool": "vramscope_torch_release_pool",
}
_made = None


def _address(preloaded, name):
    function = getattr(preloaded, name, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def allocator():
    """The ``torch.cuda.memory.CUDAPluggableAllocator`` that is served by vramscope's pool: one for the process."""
    global _made
    if library.get() is None:
        raise RuntimeError("vramscope is not preloaded here: start the program with `vramscope run -- python ...`")
    if _made is None:
        from torch.cuda.memory import CUDAPluggableAllocator

        preloaded = ctypes.CDLL(None)
        if _address(preloaded, "vramscope_torch_malloc") is None:
            raise RuntimeError("the preloaded libvramscope.so does not serve PyTorch's pluggable allocator")
        # None: what is preloaded is in the program's own scope. Its path would do, were it still where it was.
        made = CUDAPluggableAllocator(None, "vramscope_torch_malloc", "vramscope_torch_free")
        for setter, name in _FUNCTIONS.items():
            address, take = _address(preloaded, name), getattr(made.allocator(), setter, None)
            if address is not None and take is not None:
                take(address)
        _made = made
    return _made


def _forget_backend():
    # PyTorch reads its settings late, and asserts that a backend named there (by `--pool on`) is the one in force.
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        options = os.environ.get(name, "").split(",")
        kept = ",".join(o for o in options if o.strip().partition(":")[0].strip() != "backend")
        if kept:
            os.environ[name] = kept
        else:
            os.environ.pop(name, None)


def use():
    """Makes it PyTorch's allocator, for good. Once CUDA was used it is too late, and an error says so."""
    import torch

    if torch.cuda.is_initialized():
        raise RuntimeError("vramscope.torch.use() comes too late: PyTorch has used CUDA already")
    made = allocator()
    _forget_backend()
    torch.cuda.memory.change_current_allocator(made)
