"""Calls the driver while the interpreter ends. The argument says who."""

import atexit
import sys
import threading
import time

import gpu


def daemons():
    """Threads that nobody waits for."""

    def work():
        gpu.released.enter()
        place = gpu.ctypes.c_uint64()
        at, alloc, free = gpu.ctypes.addressof(place), gpu.released.alloc, gpu.released.free

        def allocate(n):
            return allocate(n - 1) if n else alloc(at, 5000)

        while True:
            for n in range(8):
                allocate(n)
                free(place.value)

    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.004)


def handlers():
    """Exit handlers."""

    def handler(n, touch=gpu.touch):
        touch()
        if n:
            handler(n - 1)

    atexit.register(handler, 3)
    atexit.register(lambda: gpu.touch())


def deletions():
    """Objects that die with their modules, and one in a cycle."""

    class Dying:
        def __init__(self, driver):
            self.place = gpu.ctypes.c_uint64()
            self.at = gpu.ctypes.addressof(self.place)
            self.alloc, self.free, self.note = driver.alloc, driver.free, gpu.note

        def __del__(self):
            self.alloc(self.at, self.note())
            self.free(self.place.value)

    global one, two
    one, two = Dying(gpu.released), Dying(gpu.held)
    sys.kept = Dying(gpu.held)
    cycle = Dying(gpu.released)
    cycle.me = cycle
    gpu.last = Dying(gpu.held)


print(sys.argv[1], flush=True)
gpu.touch()
for name in sys.argv[1].split("-"):
    globals()[name]()
