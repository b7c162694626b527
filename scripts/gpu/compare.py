"""Compares what a program printed under vramscope with what it printed bare.

    compare.py BARE OTHER MODE

Prints one word or short line for the table; exit 0 if right. The rules, line by line:
  # ...            not compared
  [host] ...       promised only where the host waits: not in mode "device", where only the count is shown
  right=N/M        N may be larger than bare (a program that is natively wrong may become right), not smaller
  ~... key=CODE    a code may be a success where bare has an error, not the other way round
  anything else    must be equal
"""
import re
import sys

SUCCESS = {"cudaSuccess", "CUDA_SUCCESS", "ok", "yes"}
RIGHT = re.compile(r"right=(\d+)/(\d+)")


def lines(path):
    with open(path, errors="replace") as f:
        return [line.rstrip("\n") for line in f if not line.startswith("#")]


def no_worse(bare, other):
    """Whether `other` may stand where `bare` stood."""
    if bare == other:
        return True
    a, b = RIGHT.findall(bare), RIGHT.findall(other)
    if a and len(a) == len(b) and RIGHT.sub("", bare) == RIGHT.sub("", other):
        return all(int(y[0]) >= int(x[0]) and x[1] == y[1] for x, y in zip(a, b))
    if bare.startswith("~"):
        x, y = bare.split(), other.split()
        return len(x) == len(y) and all(
            p == q or ("=" in p and p.split("=")[0] == q.split("=")[0] and q.split("=", 1)[1] in SUCCESS) for p, q in zip(x, y)
        )
    return False


def main():
    bare, other, mode = lines(sys.argv[1]), lines(sys.argv[2]), sys.argv[3]
    unpromised = [0, 0]
    for i in range(max(len(bare), len(other))):
        a = bare[i] if i < len(bare) else "(nothing)"
        b = other[i] if i < len(other) else "(nothing)"
        if mode == "device" and a.startswith("[host]") and b.startswith("[host]"):
            n, of = (int(x) for x in RIGHT.search(b).groups())
            unpromised[0] += n
            unpromised[1] += of
            continue
        if not no_worse(a, b):
            print("WRONG")
            print(f"  line {i + 1} bare:  {a}\n  line {i + 1} {mode}: {b}", file=sys.stderr)
            sys.exit(1)
    if unpromised[1]:
        print(f"({unpromised[0]}/{unpromised[1]})")
    else:
        print("ok")


main()
