"""A loss is added up as a tensor: the sum keeps the graph of every loss in it, and the graphs keep their tensors.

A loss that went through backward() has given its saved tensors up by then, and its sum keeps only nodes and single
numbers. What fills the GPU is a loss that is only watched (here a second measure of the error): no backward() ever frees
its graph.

Memory: grows by what the watched loss saved for its own backward, a step.
"""
import argparse

import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--device", default="cuda")
parser.add_argument("--size", type=int, default=1024, help="width of the model")
args = parser.parse_args()

torch.manual_seed(0)
layers = torch.nn.Linear(args.size, args.size), torch.nn.ReLU(), torch.nn.Linear(args.size, args.size)
model = torch.nn.Sequential(*layers).to(args.device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
total_loss = 0

for step in range(args.steps):
    x = torch.randn(512, args.size, device=args.device)
    error = model(x) - x
    loss = error.pow(2).mean()
    watched = (error.abs() + 0.1).pow(1.5).mean()  # grows: its graph keeps what pow and abs need to go back
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    # WRONG: the sum is a tensor with a history, in which every step is still alive.
    # Instead: total_loss += watched.detach(), or .item() where waiting for the GPU does not matter.
    total_loss += watched
    print(f"step {step}: loss {loss.item():.6f}")

print(f"done: mean of the watched loss {total_loss.item() / max(args.steps, 1):.6f}")
print("torch says: allocated", torch.cuda.memory_allocated(), "peak", torch.cuda.max_memory_allocated(), end=" ")
print("reserved", torch.cuda.memory_reserved())
