"""A recurrent network is trained step by step along a sequence, and its state is carried over with its history.

The second backward() then fails with "Trying to backward through the graph a second time", and the advice in that
message (retain_graph=True) makes it run: each backward() goes all the way back to the first step, and nothing is freed.

Memory: grows by a step's activations; and each step takes longer than the one before.
"""
import argparse

import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=40, help="length of the sequence")
parser.add_argument("--device", default="cuda")
parser.add_argument("--size", type=int, default=1024, help="width of the state")
args = parser.parse_args()

torch.manual_seed(0)
cell = torch.nn.GRUCell(args.size, args.size).to(args.device)
optimizer = torch.optim.SGD(cell.parameters(), lr=1e-3)
state = torch.zeros(256, args.size, device=args.device)

for step in range(args.steps):
    x = torch.randn(256, args.size, device=args.device)
    # WRONG: the state still hangs on all steps before. Instead, every few steps: state = cell(x, state.detach()).
    state = cell(x, state)  # grows: gates and state of every step
    loss = (state - x).pow(2).mean()
    # WRONG: keeps what the next backward() should not need. Instead: loss.backward().
    loss.backward(retain_graph=True)
    print(f"step {step}: loss {loss.item():.6f}")

optimizer.step()  # (Before the end it would change weights that the old graphs need, and PyTorch would refuse.)
norm = torch.stack([p.detach().norm() for p in cell.parameters()]).norm()
print(f"done: norm of the weights {norm.item():.6f}")
print("torch says: allocated", torch.cuda.memory_allocated(), "peak", torch.cuda.max_memory_allocated(), end=" ")
print("reserved", torch.cuda.memory_reserved())
