"""A small transformer, trained deterministically: losses, a checksum of the weights, PyTorch's own statistics, a graph."""
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import sys
import time

import torch

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
side = torch.cuda.Stream()


def step(i):
    x = torch.randn(16, 64 + 16 * (i % 4), 256, device="cuda")
    loss = (model(x) - x.roll(1, 1)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.stream(side):  # some work on a second stream, handed back with record_stream
        side.wait_stream(torch.cuda.current_stream())
        y = x * 2
        y.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(side)
    return loss + 0 * y.sum()


losses = [step(i) for i in range(8)]
torch.cuda.synchronize()
start = time.perf_counter()
losses += [step(i) for i in range(24)]
torch.cuda.synchronize()
print(f"ms_step={(time.perf_counter() - start) / 24 * 1e3:.2f}", file=sys.stderr)
for i, loss in enumerate(losses):
    if i % 8 == 7:
        print(f"loss {i}: {loss.item()!r}")
print(f"weights {sum(p.double().sum().item() for p in model.parameters())!r}")
try:
    print(f"allocated {torch.cuda.memory_allocated()} peak {torch.cuda.max_memory_allocated()} reserved {torch.cuda.memory_reserved()}")
    torch.cuda.empty_cache()
    print(f"after empty_cache: reserved {torch.cuda.memory_reserved()}")
except Exception as e:  # a backend without statistics
    print(f"statistics: {type(e).__name__}")
try:
    y = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = y * 2 + 1
    graph.replay()
    torch.cuda.synchronize()
    result = "ok" if float(z.sum()) == 3000 else "wrong"
except Exception as e:
    result = type(e).__name__
print(f"~graph={result}")
