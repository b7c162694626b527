"""Validation runs with gradients on and gathers its predictions, so the graphs of all its batches are alive at once.

Memory: flat while training; in each validation it climbs with every batch, and falls back at the end. The peak of the
run is in validation, which should need less than training.
"""
import argparse

import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=40, help="batches of each validation")
parser.add_argument("--device", default="cuda")
parser.add_argument("--size", type=int, default=1024, help="width of the model")
args = parser.parse_args()

torch.manual_seed(0)
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(args.size, args.size), torch.nn.Tanh())]
model = torch.nn.Sequential(*layers).to(args.device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)


def train():
    model.train()
    for _ in range(10):
        x = torch.randn(256, args.size, device=args.device)
        optimizer.zero_grad(set_to_none=True)
        (model(x) - x).pow(2).mean().backward()
        optimizer.step()


def validate():
    model.eval()  # changes what dropout and batch norm do; it does not switch gradients off
    predictions = []
    # WRONG: every prediction brings its graph along, and the graph every activation.
    # Instead: with torch.no_grad(): (or torch.inference_mode()) around this loop.
    for _ in range(args.steps):
        x = torch.randn(256, args.size, device=args.device)
        predictions.append(model(x))  # grows: all activations of the batch stay
    return torch.cat(predictions).mean().item()


for epoch in range(2):
    train()
    print(f"epoch {epoch}: mean prediction {validate():.6f}")

print("done")
print("torch says: allocated", torch.cuda.memory_allocated(), "peak", torch.cuda.max_memory_allocated(), end=" ")
print("reserved", torch.cuda.memory_reserved())
