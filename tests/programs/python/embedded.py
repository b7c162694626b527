"""What `embed.c` runs: it has the driver as `c_alloc` and `c_free`."""

import sys

import gpu


def touch():
    size = [0]
    p = c_alloc(size.__setitem__(0, gpu.note()) or size[0])  # noqa: F821
    if not p or c_free(gpu.leave(gpu.Memory(size[0], p))) != 0:  # noqa: F821
        raise RuntimeError("the driver")


def recursion(n):
    return recursion(n - 1) if n else touch()


class C:
    def method(self):
        return [recursion(2) for _ in range(2)]


C().method()
sorted([2, 1], key=lambda x: touch() or x)
# Code that lives shortly, so that addresses come back from one interpreter to the next.
for i in range(50):
    space = {"touch": touch}
    exec(compile("def g%02d(): touch()\ng%02d()" % (i, i), "<e%02d>" % i, "exec"), space)
print("ran", len(sys.argv) >= 0)
sys.stdout.flush()
