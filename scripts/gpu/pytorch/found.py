"""Looks in histories for what a run was to leave there.

    found.py grows SCRIPT HISTORY...    memory of the lines that SCRIPT marks `# grows` grows; `# grows: segments` means
                                        PyTorch's segments. A script without marks must have stacks; growth is only told.
    found.py oom HISTORY...             an out-of-memory explanation with holders and advice

Prints one line; exit 1 if it is not there.
"""
import json
import os
import sys

LEAST = 8  # allocations that must be alive together for growth


def read(path):
    for line in open(path, encoding="utf-8", errors="replace"):
        try:
            yield json.loads(line)
        except ValueError:
            return


class Line:
    """Live memory of one line of Python."""

    def __init__(self):
        self.now = self.count = self.peak = self.count_at_peak = 0
        self.after = []  # live bytes after each allocation
        self.peak_at = 0

    def add(self, n):
        self.now += n
        self.count += 1
        self.after.append(self.now)
        if self.now > self.peak:
            self.peak, self.count_at_peak, self.peak_at = self.now, self.count, len(self.after)

    def remove(self, n):
        self.now -= n
        self.count -= 1

    def grows(self):
        """From a quarter of the way to its peak on: much more at once, and of many steps."""
        quarter = self.after[self.peak_at // 4] if self.after else 0
        return self.count_at_peak >= LEAST and self.peak >= 1.5 * quarter


def live_by_line(paths, name, memories):
    """Lines of the file of this name that allocated such memory; and how many there were, with a stack, with a line."""
    lines, total, stacked, placed = {}, 0, 0, 0
    for path in paths:
        places, stacks, live, events = {}, {}, {}, []
        for e in read(path):
            kind = e.get("kind")
            if kind == "python":
                places[e["python"]] = e
            elif kind == "stack":
                stacks[e["stack"]] = e["frames"]
            elif kind in ("alloc", "free"):
                events.append(e)
        for e in sorted(events, key=lambda e: e["time"]):
            if e["kind"] == "free":
                for line, n in live.pop(e.get("id"), []):
                    line.remove(n)
                continue
            if e.get("memory", "device") not in memories:
                continue
            total += 1
            frames = stacks.get(e.get("stack", 0), [])
            stacked += bool(frames)
            here = [places[f] for f in frames if isinstance(f, int)]
            mine = {p["line"] for p in here if os.path.basename(p["file"]) == name}
            placed += bool(mine)
            for number in mine:
                line = lines.setdefault(number, Line())
                line.add(e["bytes"])
                live.setdefault(e["id"], []).append((line, e["bytes"]))
    return lines, total, stacked, placed


def grows(script, histories):
    marks = {}
    for number, text in enumerate(open(script, encoding="utf-8"), 1):
        if "  # grows" in text:
            marks[number] = {"device", "vmm"} if "# grows: segments" in text else {"tensor"}
    memories = next(iter(marks.values()), {"tensor"})
    lines, total, stacked, placed = live_by_line(histories, os.path.basename(script), memories)
    if not total:
        print(f"WRONG: no memory of kind {', '.join(sorted(memories))}")
        return 1
    told = f"{total} allocations, {stacked} with a stack, {placed} with a line of it"
    growing = {n: line for n, line in lines.items() if line.grows()}
    if not marks:
        print(f"{'ok' if stacked else 'WRONG'}: {told}; lines that look like growth: {sorted(growing) or 'none'}")
        return 0 if stacked else 1
    bad = [n for n in marks if n not in growing]
    for n in marks:
        line = lines.get(n, Line())
        told += f"; line {n}: {line.peak / 2**20:.1f} MiB in {line.count_at_peak} at its peak"
    print(f"{'WRONG' if bad else 'ok'}: {told}" + (f"; NO GROWTH at line {bad}" if bad else ""))
    return 1 if bad else 0


def oom(histories):
    found = [e for path in histories for e in read(path) if e.get("kind") == "oom"]
    if not found:
        print("WRONG: no history explains an out of memory")
        return 1
    by = ", ".join(sorted({e.get("what", "?") for e in found}))
    e = max(found, key=lambda e: len(e.get("holders", [])))
    ok = bool(e.get("holders")) and "total" in e
    told = f"asked {e.get('asked', 0)}, free {e.get('free', 0)}"
    told += f", {len(e.get('holders', []))} holders, {len(e.get('advice', []))} pieces of advice"
    print(f"{'ok' if ok else 'WRONG'}: {len(found)} explanations, by {by}; {told}")
    return 0 if ok else 1


if __name__ == "__main__":
    if sys.argv[1] == "oom":
        sys.exit(oom(sys.argv[2:]))
    sys.exit(grows(sys.argv[2], sys.argv[3:]))
