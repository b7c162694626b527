"""Parts of PyTorch that have memory of their own.

    features.py graphs|default|reduce-overhead|without-trees|expandable|mempool|profiler

graphs: inference with CUDA graphs. default, reduce-overhead: torch.compile in that mode. without-trees: reduce-overhead without
CUDA graph trees, as under --pool on; PyTorch rounds otherwise there, bare too. expandable: expandable
segments. mempool: torch.cuda.MemPool. profiler: torch.profiler with profile_memory=True.
"""
import json
import os
import sys
import tempfile

if "expandable" in sys.argv:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import models
import tell
import torch

args = tell.begin("graphs", "default", "reduce-overhead", "without-trees", "expandable", "mempool", "profiler")
device, small = args.device, args.small
width = 64 if small else 512


def need_gpu():
    if device.type != "cuda":
        tell.skip(f"{args.what} needs a GPU")


def graphs():
    need_gpu()
    model = models.transformer(width).to(device).eval()
    ready = []
    with torch.no_grad():
        for length in (16, 64, 256):
            x = torch.randn(8, length, width, device=device)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # warm up, as PyTorch's manual has it
                model(x)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = model(x)
            ready.append((graph, x, y))

    def step(i):
        graph, x, y = ready[i % 3]
        x.copy_(torch.randn_like(x))
        graph.replay()
        return y.double().sum()

    for i, total in enumerate(tell.timed(device, step, 60, 6)):
        tell.say(f"output {i}", total.item())
    tell.say("reserved with graphs", torch.cuda.memory_reserved())
    ready.clear()
    tell.wait(device)
    tell.say("allocated without graphs", torch.cuda.memory_allocated())


def compiled(mode):
    if mode == "without-trees":
        from torch._inductor import config

        config.triton.cudagraph_trees = False
        mode = "reduce-overhead"
    torch.manual_seed(0)
    model = models.Block(width, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = torch.compile(model, mode=None if mode == "default" else mode)

    def step(i):
        x = torch.randn(8, 64, width, device=device)
        loss = (run(x) - x).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    for i, loss in enumerate(tell.timed(device, step, 4 if small else 20, 2 if small else 6)):
        tell.say(f"loss {i}", loss)
    tell.say("weights", tell.checksum(model))


def expandable():
    # Sizes that grow, a shrink, and the cache given back between.
    for round in range(3):
        kept = [torch.ones((4 + i) << 18, device=device) for i in range(24)]
        del kept[::2]
        kept += [torch.ones((8 + i) << 18, device=device) for i in range(12)]
        tell.say(f"sum {round}", float(sum(k.double().sum() for k in kept)))
        del kept
        if device.type == "cuda" and round == 1:
            torch.cuda.empty_cache()
            tell.say("reserved after empty_cache", torch.cuda.memory_reserved())
    model = models.transformer(width, 2).to(device)
    for i in range(6):
        x = torch.randn(8, 32 + 40 * i, width, device=device)
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        tell.say(f"loss {i}", loss.item())


def mempool():
    need_gpu()
    if not hasattr(torch.cuda, "MemPool"):
        tell.skip("this PyTorch has no torch.cuda.MemPool")
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [torch.full((3 << 20,), float(i), device=device) for i in range(8)]
    outside = torch.ones(1 << 20, device=device)
    tell.say("sum", float(sum(t.double().sum() for t in inside) + outside.sum()))
    if hasattr(pool, "snapshot"):
        tell.say("pool", tell.shape_of(pool.snapshot()))
    tell.say("reserved", torch.cuda.memory_reserved())
    del inside
    with torch.cuda.use_mem_pool(pool):
        again = torch.zeros(1 << 20, device=device)
    tell.say("again", float(again.sum()))
    del again, pool
    torch.cuda.empty_cache()
    tell.say("reserved without pool", torch.cuda.memory_reserved())


def profiler():
    model = models.transformer(width, 2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        x = torch.randn(8, 64, width, device=device)
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    step()
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] * (device.type == "cuda")
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        losses = [step() for _ in range(3)]
        tell.wait(device)
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        profile.export_chrome_trace(f.name)
        with open(f.name, encoding="utf-8", errors="replace") as text:
            events = json.load(text)["traceEvents"]
    memory = [e["args"] for e in events if e.get("name") == "[memory]"]
    for i, loss in enumerate(losses):
        tell.say(f"loss {i}", loss)
    for kind in sorted({m.get("Device Type") for m in memory}):
        mine = [m.get("Bytes", 0) for m in memory if m.get("Device Type") == kind]
        given = sum(n for n in mine if n > 0)
        tell.say(f"memory events of device type {kind}", f"{len(mine)}, {given} bytes given out")
    tell.say("kernels", sum(e.get("cat") == "kernel" for e in events))


what = args.what
if what in ("default", "reduce-overhead", "without-trees"):
    compiled(what)
else:
    {"graphs": graphs, "expandable": expandable, "mempool": mempool, "profiler": profiler}[what]()
tell.end()
