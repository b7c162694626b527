"""Greenlets: stacks that are swapped under the interpreter."""

import greenlet

import gpu


def deep(n, other):
    if n:
        return deep(n - 1, other)
    gpu.touch()
    got = other.switch(1) if other else 0
    gpu.touch()
    return got


def first():
    deep(5, second)
    gpu.touch()
    return 1


def run_second(x):
    deep(2, one)
    gpu.touch()
    return x


one = greenlet.greenlet(first)
second = greenlet.greenlet(run_second)
gpu.touch()
print(one.switch())
print(second.dead, one.dead)
gpu.touch()
list(map(lambda _: greenlet.greenlet(lambda: gpu.touch()).switch(), [1, 2]))
