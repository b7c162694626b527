"""Stands for cupy.cuda."""

import os


class _Named(object):
    pass


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        RuntimeError.__init__(self, status)
        self.status = status


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        MemoryError.__init__(self, size, total, limit)


runtime, memory = _Named(), _Named()
runtime.CUDARuntimeError = CUDARuntimeError
memory.OutOfMemoryError = OutOfMemoryError


def usual(size):
    return "usual %d" % size


def malloc_async(size):
    if os.environ.get("BROKEN") == "async":
        raise RuntimeError("Device 0 does not support malloc_async")
    if size > 1000:
        raise CUDARuntimeError(2)
    return "async %d" % size


_allocator = usual


def get_allocator():
    return _allocator


def set_allocator(allocator):
    global _allocator
    _allocator = allocator
