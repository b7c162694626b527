"""What recording costs within one process: blocks of steps, in turn recorded and paused.

    vramscope run -- python paused.py [BLOCKS] [STEPS]

From process to process a launch-bound loop varies by more than recording costs; within one it does not.
"""
import os
import statistics
import sys
import time

import models
import torch
import vramscope

blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 12
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 8
torch.manual_seed(0)
name, model, vocabulary = models.gpt2()
model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))


def step():
    tokens = torch.randint(0, vocabulary, (4, 513), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


for _ in range(6):
    step()
times, used = {True: [], False: []}, {True: [], False: []}
for block in range(2 * blocks):
    paused = block % 2 == 1
    vramscope.pause() if paused else vramscope.resume()
    step()
    for _ in range(steps):
        torch.cuda.synchronize()
        start, cpu = time.perf_counter(), time.process_time()
        step()
        torch.cuda.synchronize()
        times[paused].append((time.perf_counter() - start) * 1e3)
        used[paused].append((time.process_time() - cpu) * 1e3)
allocations = torch.cuda.memory_stats()["allocation.all.allocated"] / (6 + 2 * blocks * (steps + 1))
print(
    f"{name}, {torch.cuda.get_allocator_backend()}, {'vramscope ' + os.environ.get('VRAMSCOPE_STACKS', 'all') if vramscope.active() else 'bare'}: ms a step"
    f" recorded {statistics.median(times[False]):.2f}, paused {statistics.median(times[True]):.2f};"
    f" of processors {statistics.median(used[False]):.2f}, {statistics.median(used[True]):.2f}; {allocations:.0f} allocations a step"
)
