"""Sessions whose state grows by a little each step, with scratch of the same size: the holes never fit again.

PyTorch's allocator takes 20 MiB segments for requests of 1 to 10 MiB. Scratch and state of 7 MiB share one. The scratch
is freed, but the next request is a little larger than the hole; and the segment cannot be given back, for the state is
in it.

Memory: allocated stays near 8 MiB a session, reserved is 20 MiB a session. Where that reaches --limit, a few MiB are
refused although more than half of what is reserved is free.
"""
import argparse

import torch

SESSIONS = 32

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--device", default="cuda")
parser.add_argument("--size", type=int, default=1024, help="width of the state; with 1024 the first has 7 MiB")
parser.add_argument("--limit", type=int, default=0, help="MiB that PyTorch may reserve; 410: out of memory at step 20")
args = parser.parse_args()

device = torch.device(args.device)
if args.limit and device.type == "cuda":
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, args.limit * 2**20 / total), device.index or 0)
sessions = [None] * SESSIONS

for step in range(args.steps):
    # WRONG: never the same size twice. Instead: round lengths up to a few sizes (`-(-length // 256) * 256`), or make the
    # longest once and fill it; where sizes cannot be chosen: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
    length = 1792 + 16 * step
    try:
        scratch = torch.full((length, args.size), float(step), device=device)  # grows: segments
        sessions[step % SESSIONS] = scratch * 2
    except torch.cuda.OutOfMemoryError as e:
        print(f"step {step}: out of memory: {str(e).splitlines()[0]}")
        break
    del scratch
    print(f"step {step}: {torch.cuda.memory_allocated() >> 20} of {torch.cuda.memory_reserved() >> 20} MiB are in use")

print(f"done: checksum {sum(s[0, 0].item() for s in sessions if s is not None)}")
print("torch says: allocated", torch.cuda.memory_allocated(), "peak", torch.cuda.max_memory_allocated(), end=" ")
print("reserved", torch.cuda.memory_reserved())
