"""Stands for torch.cuda.memory. Like PyTorch's, the allocator gets addresses of C functions."""

import ctypes


class Allocator(object):
    """Stands for torch._C._CUDAPluggableAllocator, in a version that has not every setter."""

    def __init__(self, malloc, free):
        self.functions = {"malloc": malloc, "free": free}

    def set_reset_fn(self, address):
        self.functions["reset"] = address

    def set_record_stream_fn(self, address):
        self.functions["record_stream"] = address

    def set_memory_fraction_fn(self, address):
        self.functions["memory_fraction"] = address


class CUDAPluggableAllocator(object):
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        address = [ctypes.cast(getattr(library, n), ctypes.c_void_p).value for n in (malloc, free)]
        self._allocator = Allocator(*address)

    def allocator(self):
        return self._allocator


current = None


def change_current_allocator(allocator):
    global current
    current = allocator
