"""vramscope.torch with a stand-in of PyTorch: what it gives it, and what it says where it can't."""

import ctypes
import os
import sys

import torch
import vramscope.torch


def refused(call, why):
    try:
        call()
    except RuntimeError as e:
        assert why in str(e), e
    else:
        raise AssertionError(why)


preloaded = ctypes.CDLL(None)
if sys.argv[1:] == ["absent"]:
    refused(vramscope.torch.allocator, "vramscope is not preloaded")
    refused(vramscope.torch.use, "vramscope is not preloaded")
elif not hasattr(preloaded, "vramscope_torch_malloc"):
    refused(vramscope.torch.use, "does not serve")
else:
    torch.cuda.initialized = True
    refused(vramscope.torch.use, "too late")
    torch.cuda.initialized = False
    rounding = "roundup_power2_divisions:[256:1,512:2]"
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync," + rounding
    os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"
    vramscope.torch.use()
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == rounding and "PYTORCH_ALLOC_CONF" not in os.environ
    assert torch.cuda.memory.current is vramscope.torch.allocator()
    for name, address in vramscope.torch.allocator().allocator().functions.items():
        function = getattr(preloaded, "vramscope_torch_" + name)
        assert address == ctypes.cast(function, ctypes.c_void_p).value, name
print("done")
