"""Numba-CUDA: kernels, device arrays that come and go, two streams, shared memory."""
import warnings

warnings.simplefilter("ignore")
import numpy as np

# numba names functions that NumPy 2.5 took away; it uses none of them here.
for old, new in {"row_stack": "vstack", "trapz": "trapezoid", "in1d": "isin", "product": "prod", "cumproduct": "cumprod"}.items():
    if not hasattr(np, old):
        setattr(np, old, getattr(np, new))
from numba import cuda


@cuda.jit
def saxpy(out, x, y, a):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@cuda.jit
def block_sum(out, x):
    part = cuda.shared.array(256, dtype="int64")
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    part[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    step = 128
    while step > 0:
        if t < step:
            part[t] += part[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = part[0]


n = 1 << 18
x = np.arange(n, dtype=np.int64)
streams = [cuda.stream() for _ in range(2)]
total = 0
for i in range(100):
    s = streams[i % 2]
    dx = cuda.to_device(x, stream=s)
    dy = cuda.to_device(x * 3, stream=s)
    out = cuda.device_array(n, dtype=np.int64, stream=s)
    saxpy[n // 256, 256, s](out, dx, dy, i)
    sums = cuda.device_array(n // 256, dtype=np.int64, stream=s)
    block_sum[n // 256, 256, s](sums, out)
    s.synchronize()
    total += int(sums.copy_to_host(stream=s).sum()) if i % 10 == 9 else 0
    del dx, dy, out, sums
print("sum", total, "expected", sum((i + 3) * int(x.sum()) for i in range(9, 100, 10)))
free, size = cuda.current_context().get_memory_info()
print("free is under total:", 0 < free < size)
cuda.synchronize()
