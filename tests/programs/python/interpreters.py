"""Sub-interpreters in the main thread and in others: the frames are theirs."""

import importlib
import os
import sys
import threading

import gpu

SOURCE = """
import os, sys
sys.path.insert(0, %(path)r)
os.environ["FIRST_NUMBER"] = "%(first)d"
import gpu
def inside(n):
    return inside(n - 1) if n else gpu.touch(outer=%(outer)r)
for driver in gpu.drivers:
    gpu.use(driver)
    inside(3)
    sorted([1], key=lambda _: inside(1))
"""


def module():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    return None


interpreters = module()
first = [1000]


def create(shared):
    """An interpreter with the GIL of this one, or (3.12 and newer) with its own."""
    if sys.version_info >= (3, 13):
        return interpreters.create("legacy" if shared else "isolated")
    if sys.version_info >= (3, 12):
        return interpreters.create(isolated=not shared)
    return interpreters.create()


def run(shared):
    """What comes of it: ctypes can't be imported into every interpreter of every version."""
    try:
        it = create(shared)
        first[0] += 1000
        what = {"path": os.path.dirname(__file__), "first": first[0], "outer": gpu.outwards(sys._getframe())}
        error = None
        try:
            error = interpreters.run_string(it, SOURCE % what)
        finally:
            interpreters.destroy(it)
        result = "ran" if error is None else error.type.__name__ + ": " + error.msg
    except Exception as e:
        result = type(e).__name__ + ": " + str(e)
    gpu.write(interpreter=result, shared=shared)
    gpu.touch()


def in_thread():
    gpu.released.enter()
    run(True)
    gpu.touch()


if interpreters is not None:
    for shared in (True, False, True):
        run(shared)
    for _ in range(3):
        t = threading.Thread(target=in_thread)
        t.start()
        t.join()
gpu.touch()
print("end")
