"""torch's own gathering of stacks, called where Python code can call it: before each module's forward."""

import time

import torch

KINDS = [
    ("torch gather, Python frames", (True, False, False)),
    ("torch gather, native frames", (False, False, True)),
    ("torch gather, both", (True, False, True)),
]


def measure(training, rounds):
    """For each kind: its name, frames a stack, and each round's sorted nanoseconds. With Python's own time for a call
    of two clocks (about 50 ns) in them."""
    profiler = getattr(torch._C, "_profiler", None)
    gather = getattr(profiler, "gather_traceback", None)
    if gather is None:
        return []
    return [(name + " (from Python)", *_kind(profiler, gather, what, training, rounds)) for name, what in KINDS]


def _kind(profiler, gather, what, training, rounds):
    costs, stacks, handles = [], [], []

    def hook(module, arguments):
        start = time.perf_counter_ns()
        stack = gather(*what)
        costs.append(time.perf_counter_ns() - start)
        if len(stacks) < len(handles):
            stacks.append(stack)

    handles.extend(module.register_forward_pre_hook(hook) for module in training.model.modules())
    values = []
    for _ in range(rounds):
        costs.clear()
        for _ in range(3):
            training.step()
        values.append(sorted(costs))
    for handle in handles:
        handle.remove()
    # The names are looked up to count the frames, which the gathered stack doesn't tell: one step's.
    depths = [len(stack) for stack in profiler.symbolize_tracebacks(stacks)]
    return f"{sum(depths) / len(depths):.1f}", values
