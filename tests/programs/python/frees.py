"""Allocations that are freed elsewhere."""

import gpu


def make(n):
    return [gpu.allocate() for _ in range(n)]


def drop(all_of_them):
    for one in all_of_them:
        gpu.free(one)


for driver in gpu.drivers:
    gpu.use(driver)
    drop(make(5))
    kept = make(2)
print(len(kept))
