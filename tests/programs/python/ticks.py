"""A handler in C that calls the driver, at any instruction of the interpreter. The argument: the library of the timer.

Nothing here is larger than what Python keeps memory for itself: the simulated driver calls malloc, which must not be
interrupted by itself.
"""

import ctypes
import sys
import time

import gpu

for _ in range(50):
    gpu.touch()


def nested(n):
    if n:
        yield from nested(n - 1)
    yield n


class Thing:
    def __init__(self):
        self.x = 1

    def __del__(self):
        self.x = 2


timer = ctypes.CDLL(sys.argv[1])
timer.end.restype = ctypes.c_long
timer.begin(200)
end = time.monotonic() + 1
while time.monotonic() < end:
    for i in range(100):
        list(nested(5))
        Thing()
        sorted([3, 1, 2], key=lambda x: -x)
print(timer.end() > 0)
