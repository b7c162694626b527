"""Compares what a program told (`tell.py`) under vramscope with what it told bare, twice.

    same.py BARE BARE_AGAIN OTHER [results]

Prints the table's cell; exit 1 if OTHER differs in what is equal in both bare runs. What varies bare is counted, not
compared; where that are the losses themselves, the cell says so. With `results` only what was computed is compared:
another allocator has other statistics.
"""
import sys


STATISTICS = ("GPU ", "snapshot", "reserved", "allocated", "pool", "memory events", "kernels", "num_ooms")


def told(path):
    values, notes = {}, []
    for line in open(path, encoding="utf-8", errors="replace"):
        line = line.rstrip("\n")
        if line.startswith("# note "):
            notes.append(line[7:])
        elif not line.startswith("#") and ": " in line:
            name, value = line.split(": ", 1)
            i = 1
            while (name, i) in values:
                i += 1
            values[name, i] = value
    return values, notes


def main():
    (a, _), (b, notes), (other, _) = (told(p) for p in sys.argv[1:4])
    if "results" in sys.argv[4:]:
        prefixes = ("receiver ", "rank 0 ", "rank 1 ")
        for values in (a, b, other):
            for n in list(values):
                name = next((n[0][len(p) :] for p in prefixes if n[0].startswith(p)), n[0])
                if name.startswith(STATISTICS):
                    del values[n]
    varies = {n for n in a.keys() | b.keys() if a.get(n) != b.get(n)}
    # One that varies makes the later ones vary, too: two runs that happen to agree there prove nothing.
    results = {n for n in b if "loss" in n[0] or "output" in n[0] or "weights" in n[0]}
    if varies & results:
        varies |= results
    wrong = [n for n in sorted((b.keys() | other.keys()) - varies) if b.get(n) != other.get(n)]
    for n in wrong[:10]:
        print(f"  {n[0]}: bare {b.get(n, '(nothing)')}, here {other.get(n, '(nothing)')}", file=sys.stderr)
    losses = [n for n in b if "loss" in n[0] or "output" in n[0]]
    words = []
    if not b:
        words.append("WRONG: bare told nothing")
    if wrong:
        words.append(f"{len(wrong)} of {len(b)} DIFFER")
    if losses and all(n in varies for n in losses):
        words.append("losses vary bare")
    varies -= set(losses)
    if varies:
        words.append(f"{len(varies)} not compared")
        print("  vary bare: " + ", ".join(sorted({n[0] for n in varies}))[:300], file=sys.stderr)
    print("; ".join(words) or "same")
    return 1 if wrong or not b else 0


if __name__ == "__main__":
    sys.exit(main())
