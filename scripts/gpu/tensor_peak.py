"""Checks the tensors of histories: what PyTorch's own statistics say must be in them, to the byte.

    tensor_peak.py [--said OUTPUT] HISTORY...

For every history and device: the peak of the live bytes of memory `tensor` (torch.cuda.max_memory_allocated() says the
same), what is live at the end, and whether each tensor, when it was made, lay inside live memory of the driver or a
mapping. OUTPUT is what the program printed. Its lines `# said pid=… time=… device=… allocated=… peak=… reserved=…` (wall
clock in ns) are compared with that process's history at that time; of `torch says: allocated A peak P reserved R` only
the peak, with the whole history.
Prints a line a device; exit 1 if something is wrong. With PyTorch's cudaMallocAsync backend there are no tensors; the
stream-ordered memory is told instead, and what was said is not compared.
"""
import argparse
import bisect
import json
import re
import subprocess
import sys

SAID = re.compile(r"# said ((?:\w+=\S+ ?)+)")
SAYS = re.compile(r"torch says: allocated (\d+) peak (\d+) reserved (\d+)")
CONTAINERS = {"device", "pitch", "managed", "async", "imported"}  # their address is one of the device
TORCH = "libc10_cuda"
CUDA = ("libcuda", "libvramscope")  # between a caller and its memory


def read(path):
    if path.endswith(".zst"):
        source = subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout.decode().splitlines()
    else:
        source = open(path, encoding="utf-8", errors="replace")
    for line in source:
        try:
            yield json.loads(line)
        except ValueError:
            return  # a cut last line


class Ranges:
    """Addresses that are memory; pieces may touch, and do not overlap."""

    def __init__(self):
        self.starts, self.ends = [], []

    def add(self, start, end):
        self.cut(start, end)
        i = bisect.bisect_left(self.starts, start)
        self.starts.insert(i, start)
        self.ends.insert(i, end)

    def cut(self, start, end):
        i = bisect.bisect_right(self.starts, start) - 1
        i += i < 0 or self.ends[i] <= start
        while i < len(self.starts) and self.starts[i] < end:
            first, last = self.starts.pop(i), self.ends.pop(i)
            for a, b in ((first, start), (end, last)):
                if a < b:
                    self.starts.insert(i, a)
                    self.ends.insert(i, b)
                    i += 1

    def cover(self, start, end):
        while start < end:
            i = bisect.bisect_right(self.starts, start) - 1
            if i < 0 or self.ends[i] <= start:
                return False
            start = self.ends[i]
        return True


class Sum:
    """Bytes now and at most."""

    def __init__(self):
        self.now = self.peak = self.at = self.count = self.ever = 0

    def add(self, n, time):
        self.now += n
        self.count += 1
        self.ever += 1
        if self.now > self.peak:
            self.peak, self.at = self.now, time

    def remove(self, n):
        self.now -= n
        self.count -= 1


class History:
    """A history, played from its beginning."""

    def __init__(self, path):
        self.events, self.modules, self.stacks, self.header, self.lost = [], {0: ""}, {}, {}, 0
        for e in read(path):
            kind = e.get("kind")
            if kind == "header":
                self.header = e
            elif kind == "module":
                self.modules[e["module"]] = e["path"].rsplit("/", 1)[-1]
            elif kind == "stack":
                self.stacks[e["stack"]] = [f[0] for f in e["frames"] if isinstance(f, list)][:8]
            elif kind == "footer":
                self.lost = e.get("lost", 0)
            elif "time" in e and kind not in ("note", "oom"):
                self.events.append(e)
        # Under PyTorch's lock each report has its time, so by time they are in its order.
        self.events.sort(key=lambda e: e["time"])
        self.pid = self.header.get("pid", 0)
        self.start = self.header.get("start_seconds", 0) * 10**9 + self.header.get("start_nanoseconds", 0)
        self.sums, self.outside, self.compared = {}, [], []

    def sum(self, layer, device):
        return self.sums.setdefault((layer, device), Sum())

    def layers(self, e, memory):
        if memory == "tensor":
            return ["tensor"]
        callers = [e.get("caller", 0), *self.stacks.get(e.get("stack"), [])]
        names = [self.modules.get(m, "") for m in callers]
        caller = next((n for n in names if n and not n.startswith(CUDA)), "")
        torchs = memory in ("device", "vmm") and caller.startswith(TORCH)
        return ["async"] * (memory == "async") + ["reserved"] * torchs

    def play(self, said):
        device, live, gone, ranges = {}, {}, {}, Ranges()
        said = sorted((s for s in said if s["pid"] == self.pid and s["time"]), key=lambda s: s["time"])
        for e in self.events:
            while said and said[0]["time"] - self.start < e["time"]:
                self.compare(said.pop(0))
            kind = e.get("of", "alloc") if e["kind"] == "live" else e["kind"]
            if kind == "context":
                device[e["context"]] = e.get("device", 0)
            elif kind == "alloc" or kind == "free_failed" and e.get("id") in gone:
                e = gone.pop(e.get("id"), e)
                memory, n, address = e.get("memory", "device"), e.get("bytes", 0), e.get("address", 0)
                live[e["id"]] = e
                for layer in self.layers(e, memory):
                    self.sum(layer, device.get(e.get("context", 0), 0)).add(n, e["time"])
                if memory in CONTAINERS and isinstance(address, int) and address:
                    ranges.add(address, address + max(n, e.get("block", 0)))
                if memory == "tensor" and not ranges.cover(address, address + n):
                    self.outside.append(e)
            elif kind == "free" and e.get("id") in live:
                self.remove(live, gone, ranges, device, e["id"])
            elif kind == "map":
                ranges.add(e["address"], e["address"] + e["bytes"])
            elif kind == "unmap":
                ranges.cut(e["address"], e["address"] + e["bytes"])
            elif kind == "context_end":
                for i in [i for i, a in live.items() if a.get("context") == e.get("context")]:
                    if live[i].get("memory", "device") in ("device", "pitch", "managed"):
                        self.remove(live, gone, ranges, device, i)
        for s in said:
            self.compare(s)

    def remove(self, live, gone, ranges, device, i):
        e = live.pop(i)
        gone[i] = e
        memory, address = e.get("memory", "device"), e.get("address", 0)
        for layer in self.layers(e, memory):
            self.sum(layer, device.get(e.get("context", 0), 0)).remove(e.get("bytes", 0))
        if memory in CONTAINERS and isinstance(address, int) and address:
            ranges.cut(address, address + max(e.get("bytes", 0), e.get("block", 0)))

    def compare(self, s):
        tensors, reserved = self.sum("tensor", s["device"]), self.sum("reserved", s["device"])
        told = {"allocated": tensors.now, "peak": tensors.peak, "reserved": reserved.now}
        self.compared += [(s["device"], k, s[k], told[k]) for k in told if s.get(k) is not None]


def said_in(path, histories):
    """What the program said of its memory."""
    said = []
    for line in open(path, encoding="utf-8", errors="replace"):
        if m := SAID.match(line):
            s = dict(w.split("=", 1) for w in m[1].split())
            backend = s.pop("backend", "native")
            s = {k: int(v) for k, v in s.items()}
            said += [s] if backend == "native" else []
        elif m := SAYS.match(line):
            # The peak only: what is live at the end of the history is what was left after that line.
            pid = max(histories, key=lambda h: len(h.events)).pid if histories else 0
            said.append({"pid": pid, "time": 1 << 62, "device": 0, "peak": int(m[2])})
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--said", metavar="OUTPUT")
    parser.add_argument("histories", nargs="+", metavar="HISTORY")
    args = parser.parse_args()
    histories = [History(p) for p in args.histories]
    said = said_in(args.said, histories) if args.said else []
    wrong = []
    for s in said:
        if s["pid"] not in {h.pid for h in histories} and s.get("peak"):
            wrong.append(f"process {s['pid']} said a peak of {s['peak']} and has no history")
    for h in histories:
        h.play(said)
        name = f"process {h.pid}"
        for (layer, device), s in sorted(h.sums.items()):
            print(
                f"{name}, GPU {device}: {layer} peak {s.peak} at {s.at / 1e6:.3f} ms,"
                f" {s.ever} allocations, {s.now} in {s.count} at the end"
            )
        for e in h.outside[:3]:
            wrong.append(f"{name}: tensor {e['id']} of {e['bytes']} bytes is outside of all memory")
        if h.outside:
            wrong.append(f"{name}: {len(h.outside)} tensors outside of all memory")
        if h.lost:
            wrong.append(f"{name}: {h.lost} events were lost")
        for device, what, theirs, ours in h.compared:
            if theirs != ours:
                wrong.append(f"{name}, GPU {device}: PyTorch says {what} {theirs}, the history {ours}")
    compared = sum(len(h.compared) for h in histories)
    tensors = sum(s.ever for h in histories for (layer, _), s in h.sums.items() if layer == "tensor")
    for w in wrong:
        print(f"WRONG: {w}")
    print(f"{len(histories)} histories, {tensors} tensors, {compared} numbers compared, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
