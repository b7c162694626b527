"""A healthy loop: nothing here is a leak, though much of it looks like one at first.

Memory: climbs in the first steps (weights, gradients, the optimizer's moments, cuBLAS's workspace), then repeats itself
exactly: up in forward, down in backward, a smaller bump in validation, one for the checkpoint.
"""
import argparse
import io

import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--device", default="cuda")
parser.add_argument("--size", type=int, default=1024, help="width of the model")
args = parser.parse_args()

torch.manual_seed(0)
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(args.size, args.size), torch.nn.Tanh())]
model = torch.nn.Sequential(*layers).to(args.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.SequentialLR(
    optimizer,
    [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(args.steps, 1)),
    ],
    milestones=[5],
)


def batch():
    return torch.randn(256, args.size, device=args.device)


def validate():
    model.eval()
    with torch.no_grad():
        losses = [(model(x) - x).pow(2).mean().item() for x in (batch() for _ in range(4))]
    model.train()
    return sum(losses) / len(losses)


total = 0.0
for step in range(args.steps):
    x = batch()
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    scheduler.step()
    total += loss.item()  # a number, not a tensor
    print(f"step {step}: loss {loss.item():.6f}")
    if step % 10 == 9:
        checkpoint = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
        print(f"validation {validate():.6f}, mean loss {total / (step + 1):.6f}")

print("done")
print("torch says: allocated", torch.cuda.memory_allocated(), "peak", torch.cuda.max_memory_allocated(), end=" ")
print("reserved", torch.cuda.memory_reserved())
