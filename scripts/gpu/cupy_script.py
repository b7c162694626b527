"""CuPy: products, sorting, FFT, two streams. With "nopool" every array is a cudaMalloc and a cudaFree."""
import sys
import time

import cupy as cp
import numpy as np

if "nopool" in sys.argv:
    cp.cuda.set_allocator(None)
    cp.cuda.set_pinned_memory_allocator(None)
a = cp.asarray(np.random.RandomState(7).randint(0, 9, (512, 512)).astype(np.float32))
streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
cp.cuda.Device().synchronize()
total = 0
start = time.perf_counter()
for i in range(100):
    with streams[i % 2]:
        b = (a + i) * 2
        c = b[: 64 + i].sum(axis=1)
        total += int(c.sum())  # small whole numbers: exact
        del b, c
    d = cp.sort(a[:, i])
    total += int(d[100])
print(f"ms={(time.perf_counter() - start) * 10:.3f}", file=sys.stderr)
print("sum", total)
print("product", int((a @ a).sum()))
x = cp.arange(1 << 16, dtype=cp.float64)
print("fft", round(float(abs(cp.fft.ifft(cp.fft.fft(x)).real - x).max()), 6))
print("unique", cp.unique(a).size, "argmax", int(a.argmax()))
pool = cp.get_default_memory_pool()
print("pool used", pool.used_bytes(), "total", pool.total_bytes())
pool.free_all_blocks()
free, size = cp.cuda.runtime.memGetInfo()
print("free is under total:", 0 < free < size)
cp.cuda.runtime.deviceSynchronize()
