"""A critic with a gradient penalty (WGAN-GP), and the gradients are kept in a list, to look at their norms later.

A gradient that was made with create_graph=True is the end of a graph, as a prediction is: what is kept of it keeps what the backward
pass made of it. zero_grad() is there, and does nothing about it.

Memory: grows by a gradient a step, and by what its graph keeps: its own input, and what was made of it on the way back.
"""
import argparse

import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--device", default="cuda")
parser.add_argument("--size", type=int, default=1024, help="width of the critic")
args = parser.parse_args()

torch.manual_seed(0)
layers = torch.nn.Linear(args.size, args.size), torch.nn.Tanh(), torch.nn.Linear(args.size, 1)
critic = torch.nn.Sequential(*layers).to(args.device)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
gradients = []

for step in range(args.steps):
    real, fake = torch.randn(2, 256, args.size, device=args.device)
    mixed = (0.5 * real + 0.5 * fake).requires_grad_()  # grows: the graph of the gradient ends in it
    score = critic(mixed).sum()
    (gradient,) = torch.autograd.grad(score, mixed, create_graph=True)
    penalty = (gradient.norm(2, dim=1) - 1).pow(2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    # WRONG: the gradient and its graph stay on the GPU until the list goes.
    # Instead: gradients.append(gradient.detach().norm(2, dim=1).cpu()), or .item() of the one number that is wanted.
    gradients.append(gradient)
    print(f"step {step}: loss {loss.item():.6f}")

norm = torch.stack([gradient.detach().norm() for gradient in gradients]).norm()
print(f"done: norm of {args.steps} steps' gradients {norm.item():.6f}")
print("torch says: allocated", torch.cuda.memory_allocated(), "peak", torch.cuda.max_memory_allocated(), end=" ")
print("reserved", torch.cuda.memory_reserved())
