"""Checks that the bytes of a history add up to what the device says.

    adds_up.py HISTORY.jsonl [GROWTH_MIB]

Between two samples of the device's free memory, what was charged by the driver must explain the change of what is used:
an allocation over 1 MiB takes whole pages of 2 MiB, smaller ones share pages. Per pair of samples the difference must
stay within 2 MiB a live driver allocation. What the device uses beyond that is first-use growth (modules, local memory,
the driver's own), which no call announces: it is added up and must stay under GROWTH_MIB (default 1536) in all. Less used
than charged has no such excuse. Prints one line; exit 0 if it adds up, 1 if not.
"""
import json
import subprocess
import sys

GRAIN = 2 << 20
# Physical device memory that one event takes and one gives back. Stream-ordered memory comes out of the driver's own
# pools, managed memory moves, imported memory is another process's.
CHARGED = {"device", "pitch", "vmm", "array", ""}


def read(path):
    if path.endswith(".zst"):
        data = subprocess.run(["zstd", "-dc", path], check=True, stdout=subprocess.PIPE).stdout.decode(errors="replace")
        source = data.splitlines()
    else:
        source = open(path, errors="replace")
    for line in source:
        try:
            yield json.loads(line)
        except ValueError:
            pass  # a cut last line


def charge(n):
    return n if n <= 1 << 20 else -(-n // GRAIN) * GRAIN


def first(event, *names, default=0):
    for n in names:
        if event.get(n) is not None:
            return event[n]
    return default


def main():
    path = sys.argv[1]
    allowed = int(sys.argv[2]) << 20 if len(sys.argv) > 2 else 1536 << 20
    order = {"segment_alloc": 0, "alloc": 0, "free_failed": 0}
    events = [e for e in read(path) if isinstance(e, dict) and "time" in e]
    events.sort(key=lambda e: (e["time"], order.get(e.get("kind"), 1)))

    live = {}  # id -> (bytes charged, context)
    gone = {}  # the same, for a free that turns out not to have happened
    charged = 0
    asynchronous = 0
    most = 0  # the most that was live between two samples
    last = None  # used, charged at the last sample
    pairs = growth = 0
    worst = (0, 0, 0)  # how far under, tolerance, time
    largest = 0
    counts = {}

    for e in events:
        kind = e.get("kind")
        counts[kind] = counts.get(kind, 0) + 1
        memory = e.get("memory", "")
        if kind == "segment_alloc" or (kind == "alloc" and not first(e, "segment") and first(e, "how", "source", default="driver") not in ("hit", "miss")):
            if memory == "async":
                asynchronous += 1
            if memory not in CHARGED:
                continue
            n = charge(first(e, "block", "bytes") if kind == "segment_alloc" else e.get("bytes", 0))
            live[e["id"]] = (n, first(e, "context"))
            charged += n
            most = max(most, len(live))
        elif kind in ("free", "segment_free") and e.get("id") in live:
            n, context = live.pop(e["id"])
            gone[e["id"]] = (n, context)
            charged -= n
        elif kind == "free_failed" and e.get("id") in gone:
            n, context = gone.pop(e["id"])
            live[e["id"]] = (n, context)
            charged += n
        elif kind == "context_end":
            for i in [i for i, (_, c) in live.items() if c == first(e, "context")]:
                charged -= live.pop(i)[0]
            last = None  # the context's own memory goes too
        elif kind == "sample":
            free = first(e, "free", "bytes", default=None)
            total = first(e, "total", "block", default=None)
            if free is None or total is None:
                continue
            used = total - free
            if last is not None:
                pairs += 1
                excess = (used - last[0]) - (charged - last[1])
                tolerance = GRAIN * max(most, 1)
                largest = max(largest, abs(excess))
                if excess > tolerance:
                    growth += excess - tolerance
                elif -excess - tolerance > worst[0] - worst[1] and -excess > tolerance:
                    worst = (-excess, tolerance, e["time"])
            last = (used, charged)
            most = len(live)

    mib = 1 << 20
    note = f", {asynchronous} stream-ordered not counted" if asynchronous else ""
    text = f"{pairs} pairs of samples, off by {largest / mib:.1f} MiB at most, first-use growth {growth / mib:.0f} MiB{note}"
    if pairs < 1:
        print(f"WRONG: fewer than two samples ({counts})")
        return 1
    if worst[0]:
        print(f"WRONG: {text}; at {worst[2]} ns {worst[0] / mib:.1f} MiB less used than charged, allowed {worst[1] / mib:.0f}")
        return 1
    if growth > allowed:
        print(f"WRONG: {text}, allowed {allowed / mib:.0f}")
        return 1
    print(text)
    return 0


sys.exit(main())
