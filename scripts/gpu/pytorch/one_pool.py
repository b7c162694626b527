"""PyTorch, CuPy, JAX and numba-cuda in one process, one after the other: each takes GIB GiB, works on it and lets it go.

    one_pool.py [GIB] [ROUNDS]

Alone each keeps what it once had. Prints the most that the process took from the device, and sums that must be the same
however the memory is served. With `vramscope run --pool on` they share one pool.
"""
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
gib = float(sys.argv[1]) if len(sys.argv) > 1 else 4
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
n = int(gib * (1 << 30)) // 4 // 4  # four arrays of float32

import cupy
import jax
import jax.numpy as jnp
import torch

most = 0


def used():
    global most
    free, total = cupy.cuda.runtime.memGetInfo()
    most = max(most, total - free)


def with_torch():
    a = torch.arange(n, dtype=torch.float32, device="cuda") % 7
    b = a * 2
    c = a + b
    d = c * c
    used()
    return int(d.to(torch.int64).sum())


def with_cupy():
    a = cupy.arange(n, dtype=cupy.float32) % 7
    b = a * 2
    c = a + b
    d = c * c
    used()
    return int(d.astype(cupy.int64).sum())


def with_jax():
    a = jnp.arange(n, dtype=jnp.float32) % 7
    b = a * 2
    c = a + b
    d = (c * c).block_until_ready()
    used()
    return int(d.reshape(-1, 64).sum(1).astype(jnp.int32).max())


def with_numba():
    from numba import cuda

    a = cuda.device_array(n, dtype="float32")
    b = cuda.device_array(n, dtype="float32")
    used()
    return a.size + b.size


def main():
    sums = []
    users = [with_torch, with_cupy, with_jax]
    try:
        import numba.cuda

        users.append(with_numba)
    except ImportError:
        pass
    torch.cuda.init()
    free, total = cupy.cuda.runtime.memGetInfo()
    before = total - free
    for _ in range(rounds):
        sums += [user() for user in users]
    print("sums", *sums)
    print(f"# most={(most - before) / 2**30:.2f} GiB above {before / 2**30:.2f}")
    print("# torch", torch.cuda.get_allocator_backend(), "cupy", type(getattr(cupy.cuda.get_allocator(), '__self__', cupy.cuda.get_allocator())).__name__)


main()
