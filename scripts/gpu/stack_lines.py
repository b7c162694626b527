"""Every allocation carries the line that caused it.

    stack_lines.py WHAT             allocates (torch, cupy, triton, blas); the lines that do are marked `# WHAT: NAME`
    stack_lines.py WHAT check TRACE looks in the history for each mark of WHAT, and for allocations without a Python line
"""
import json
import sys


def torch_segments():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.big = torch.nn.Linear(4096, 4096)

        def forward(self, x):
            return self.big(x).relu()  # torch: forward

    kept = [torch.empty(64 << 20, device="cuda", dtype=torch.uint8)]  # torch: first
    net = Net().cuda()  # torch: weights
    x = torch.randn(8192, 4096, device="cuda")  # torch: input
    kept += [torch.empty(96 << 20, device="cuda", dtype=torch.uint8) for _ in range(2)]  # torch: list
    net(x).sum().backward()
    torch.cuda.synchronize()
    del kept


def cupy_arrays():
    import cupy

    def make(n):
        return cupy.zeros(n, dtype=cupy.float32)  # cupy: zeros

    a = make(1 << 24)
    b = cupy.arange(1 << 22) ** 2  # cupy: arange
    print(float(a.sum()) + float(b[10]))


def triton_autotune():
    import torch
    import triton
    import triton.language as tl

    @triton.autotune(configs=[triton.Config({"B": b}) for b in (256, 1024)], key=["n"])
    @triton.jit
    def double(x, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

    x = torch.ones(1 << 20, device="cuda")
    double[lambda m: (triton.cdiv(x.numel(), m["B"]),)](x, x.numel())  # triton: autotune
    torch.cuda.synchronize()


def blas_workspace():
    import torch

    a = torch.randn(2048, 2048, device="cuda", dtype=torch.float16)
    c = a @ a  # blas: matmul
    torch.cuda.synchronize()
    print(tuple(c.shape))


RUN = {"torch": torch_segments, "cupy": cupy_arrays, "triton": triton_autotune, "blas": blas_workspace}


def check(what, trace):
    marks = {}
    for number, line in enumerate(open(__file__, encoding="utf-8"), 1):
        before, _, name = line.partition(f"  # {what}: ")
        if name and before.strip():
            marks[number] = name.strip()
    places, stacks, modules = {}, {}, {}
    seen, bare, total = {}, [], 0
    for line in open(trace, encoding="utf-8"):
        e = json.loads(line)
        kind = e["kind"]
        if kind == "python":
            places[e["python"]] = e
        elif kind == "stack":
            stacks[e["stack"]] = e["frames"]
        elif kind == "module":
            modules[e["module"]] = e["path"].rsplit("/", 1)[-1]
        elif kind == "alloc" and e.get("memory", "device") in ("device", "async", "vmm"):
            total += 1
            frames = stacks.get(e.get("stack", 0), [])
            mine = [places[f] for f in frames if isinstance(f, int) and places[f]["file"] == __file__]
            if not mine:
                bare.append((modules.get(e.get("caller"), "?"), e["bytes"], len(frames)))
            for p in mine:
                name = marks.get(p["line"])
                # By function: __file__ may run from elsewhere.
                if name:
                    one = seen.setdefault(name, [0, 0, set()])
                    one[0] += 1
                    one[1] += e["bytes"]
                    one[2].add(modules.get(e.get("caller"), "?"))
    missing = [n for n in marks.values() if n not in seen]
    for name, (n, size, callers) in seen.items():
        print(f"{what} {name}: {n} allocations, {size / 2**20:.1f} MiB, by {', '.join(sorted(callers))}", file=sys.stderr)
    for caller, size, frames in bare[:8]:
        print(f"without a line of the script: {size} bytes by {caller}, {frames} frames", file=sys.stderr)
    blas = any("cublas" in c for one in seen.values() for c in one[2])
    if what == "blas" and not blas:
        missing.append("an allocation by cuBLAS itself")
    print(f"{len(marks) - len([m for m in marks.values() if m not in seen])}/{len(marks)} marks, {total - len(bare)}/{total} allocs")
    if missing:
        print("missing: " + ", ".join(missing), file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.exit(check(sys.argv[1], sys.argv[3]))
    RUN[sys.argv[1]]()
    print("done")
