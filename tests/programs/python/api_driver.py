"""The simulated driver by ctypes: a context on device 0, memory of it."""

import ctypes

MB = 1 << 20
_cuda = ctypes.CDLL("libcuda.so.1")


def start():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    assert _cuda.cuInit(0) == 0 and _cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert _cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert _cuda.cuCtxSetCurrent(context) == 0


def alloc(bytes):
    """The address, or the driver's code, negative."""
    p = ctypes.c_uint64()
    code = _cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(bytes))
    return p.value if code == 0 else -code


def free(p):
    assert _cuda.cuMemFree_v2(ctypes.c_uint64(p)) == 0
