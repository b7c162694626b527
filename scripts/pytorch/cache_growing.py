"""Attention masks are kept in a dictionary by their length, and there is always a new length.

Memory: grows with every length not seen before. It looks like a leak that slows down, and never quite ends.
"""
import argparse

import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--device", default="cuda")
parser.add_argument("--size", type=int, default=64, help="width of a head")
args = parser.parse_args()

torch.manual_seed(0)
masks = {}


def mask(length):
    # WRONG: nothing ever leaves the dictionary. Instead: functools.lru_cache(maxsize=8); or one mask of the greatest
    # length, of which mask[:length, :length] is a view; or lengths padded to a few sizes.
    if length not in masks:
        masks[length] = torch.ones(length, length, device=args.device).tril()  # grows: one mask a length
    return masks[length]


def attention(q, k, v):
    length, width = q.shape[-2:]
    weights = (q @ k.transpose(-2, -1)) / width**0.5
    return weights.masked_fill(mask(length) == 0, float("-inf")).softmax(-1) @ v


for step in range(args.steps):
    length = 512 + 37 * step % 1021  # no two of the first 1021 steps are alike
    q, k, v = torch.randn(3, 2, length, args.size, device=args.device)
    with torch.no_grad():
        out = attention(q, k, v)
    print(f"step {step}: length {length}, mean {out.mean().item():.6f}")

print(f"done: {len(masks)} masks")
print("torch says: allocated", torch.cuda.memory_allocated(), "peak", torch.cuda.max_memory_allocated(), end=" ")
print("reserved", torch.cuda.memory_reserved())
