"""A training loop's step time: medians of several rounds, for a table of what recording costs."""
import statistics
import sys
import time

import torch

size = sys.argv[1] if len(sys.argv) > 1 else "launch"
torch.manual_seed(0)
# Launch-bound: small work, many operations. GPU-bound: the device has work all the time.
width, layers, batch = {"launch": (256, 6, 8), "gpu": (1024, 8, 64)}[size]
layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)


def step():
    x = torch.randn(batch, 128, width, device="cuda")
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


for _ in range(5):
    step()
rounds = []
for _ in range(7):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    rounds.append((time.perf_counter() - start) / 10 * 1e3)
print(f"ms_step={statistics.median(rounds):.3f} best={min(rounds):.3f}", file=sys.stderr)
print("done")
