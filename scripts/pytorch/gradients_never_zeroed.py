"""zero_grad() is missing, and backward() was told to keep a graph of the gradients.

Forgetting zero_grad() alone makes the numbers wrong and costs no memory: gradients add up in the tensors they have. It
becomes a leak with create_graph=True (left over from a gradient penalty, or wanted by a second-order optimizer): then
each gradient is the sum of the one before and the new one, as a graph, and through that sum every step stays alive.

Memory: grows by a step's activations and gradients, for ever.
"""
import argparse
import warnings

import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--device", default="cuda")
parser.add_argument("--size", type=int, default=1024, help="width of the model")
args = parser.parse_args()

warnings.filterwarnings("ignore", message=".*create_graph=True.*")  # PyTorch does warn
torch.manual_seed(0)
layers = torch.nn.Linear(args.size, args.size), torch.nn.Tanh(), torch.nn.Linear(args.size, args.size)
model = torch.nn.Sequential(*layers).to(args.device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for step in range(args.steps):
    x = torch.randn(256, args.size, device=args.device)
    loss = (model(x) - x).pow(2).mean()  # grows: the graph of the gradients needs these activations
    # WRONG: nothing ever takes the gradients of the step before away, and they are the end of a graph.
    # Instead: optimizer.zero_grad(set_to_none=True) before each backward(), and no create_graph without need.
    loss.backward(create_graph=True)
    optimizer.step()
    print(f"step {step}: loss {loss.item():.6f}")

norm = torch.stack([p.grad.detach().norm() for p in model.parameters()]).norm()
print(f"done: norm of {args.steps} steps' gradients {norm.item():.6f}")
print("torch says: allocated", torch.cuda.memory_allocated(), "peak", torch.cuda.max_memory_allocated(), end=" ")
print("reserved", torch.cuda.memory_reserved())
