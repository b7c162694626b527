"""A deep stack, and a second one 100 levels less deep. The argument is the depth."""

import sys
import gpu

sys.setrecursionlimit(5000)


def down(n):
    if n == 0:
        gpu.touch()
    else:
        down(n - 1)


depth = int(sys.argv[1])
down(depth)
down(depth - 100)
print(depth)
