"""What the programs of this folder share: determinism, time, and what they tell.

A program gathers lines `name: value` and prints them at once at its end (ranks share a terminal). `same.py` compares
them. Lines that begin with # are not compared; `# said` is for `tensor_peak.py`, `# note` for the table. What a program
cannot do here it says with skip(), and ends with 77.
"""
import argparse
import hashlib
import os
import statistics
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

lines = []
times = []
prefix = ""


def begin(*choices):
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=choices)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="sizes for a CPU")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        skip("no GPU for PyTorch")
    deterministic()
    args.device = torch.device(args.device)
    return args


def deterministic():
    torch.manual_seed(0)
    # What has no deterministic form only warns: bare is run twice, and what varies there is not compared.
    torch.use_deterministic_algorithms(True, warn_only=True)
    # The fused attentions' backward passes add up in any order.
    for kind in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{kind}_sdp", lambda on: None)(False)
    torch.backends.cudnn.benchmark = False


def skip(why):
    os.write(1, f"# skip {why}\n".encode())
    os._exit(77)


def say(name, value):
    """A number goes to its last bit."""
    lines.append(f"{prefix}{name}: {value.hex() if isinstance(value, float) else value}")


def note(text):
    lines.append(f"# note {text}")


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(device, step, n, warm):
    """Runs a step so often, and returns what it returned; the times of those after the first `warm` count."""
    results = []
    for i in range(n):
        wait(device)
        start = time.perf_counter()
        results.append(step(i))
        wait(device)
        if i >= warm:
            times.append((time.perf_counter() - start) * 1e3)
    return results


def checksum(module):
    return float(sum(p.detach().double().abs().sum() for p in module.parameters()))


def shape_of(segments):
    """A snapshot of the allocator without addresses and streams' handles."""
    shape = []
    for s in segments:
        blocks = [(b["size"], b["state"]) for b in s["blocks"]]
        shape.append((s["device"], s["segment_type"], s["total_size"], s["allocated_size"], blocks))
    shape.sort()
    return hashlib.sha256(repr(shape).encode()).hexdigest()[:16]


def memory():
    """All that PyTorch says of its memory, and when."""
    if not torch.cuda.is_available():
        note("no GPU")
        return
    torch.cuda.synchronize()
    backend = torch.cuda.get_allocator_backend()
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        if not stats.get("allocation.all.allocated", 0) and not stats.get("reserved_bytes.all.peak", 0):
            continue
        for name, value in sorted(stats.items()):
            say(f"GPU {device} {name}", value)
        time.sleep(0.03)  # nobody does anything around the moment that is told
        lines.append(
            f"# said pid={os.getpid()} time={time.time_ns()} device={device} backend={backend}"
            f" allocated={torch.cuda.memory_allocated(device)} peak={torch.cuda.max_memory_allocated(device)}"
            f" reserved={torch.cuda.memory_reserved(device)}"
        )
        time.sleep(0.03)
        lines.append(f"# reserved_peak={torch.cuda.max_memory_reserved(device)}")
    if backend == "native":
        say("snapshot", shape_of(torch.cuda.memory_snapshot()))
    torch.cuda.empty_cache()
    say("reserved after empty_cache", torch.cuda.memory_reserved())


def end():
    memory()
    if times:
        lines.append(f"# ms_step={statistics.median(times):.3f}")
    os.write(1, ("\n".join(lines) + "\n").encode())
    sys.stdout.flush()
