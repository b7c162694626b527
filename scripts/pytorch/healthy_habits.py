"""A healthy loop of habits that look like leaks: copies, buffers, gradients of gradients, caches, each with an end.

An averaged copy of the weights, micro-batches whose gradients add up for a step, activation checkpointing, a gradient penalty, a replay
buffer that is full soon, the best weights so far, and a validation that gathers several results of each batch without gradients and
then generates with a cache of keys and values.

Memory: climbs until the buffer is full, then repeats itself; a bump in each validation.
"""
import argparse
import collections
import copy

import torch
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--device", default="cuda")
parser.add_argument("--size", type=int, default=512, help="width of the model")
args = parser.parse_args()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(args.size, args.size), torch.nn.Tanh())
        self.middle = torch.nn.Sequential(torch.nn.Linear(args.size, args.size), torch.nn.Tanh())
        self.decoder = torch.nn.Linear(args.size, args.size)

    def forward(self, x):
        features = self.encoder(x)
        middle = checkpoint(self.middle, features, use_reentrant=False)
        return features, self.decoder(middle)


torch.manual_seed(0)
model = Model().to(args.device)
averaged = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
buffer = collections.deque(maxlen=6)


def batch():
    return torch.randn(256, args.size, device=args.device)


def penalty(x):
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(model.encoder(x).sum(), x, create_graph=True)
    return (gradient.norm(2, dim=1) - 1).pow(2).mean()


def validate():
    features, predictions, targets = [], [], []
    with torch.no_grad():
        for _ in range(12):
            x = batch()
            feature, prediction = averaged(x)
            target = x * 2
            features.append(feature)
            predictions.append(prediction)
            targets.append(target)
        keys = torch.zeros(64, 0, args.size, device=args.device)
        for _ in range(16):
            key = averaged.encoder(torch.randn(64, 1, args.size, device=args.device))
            keys = torch.cat([keys, key], 1)
    return len(features) + len(predictions) + len(targets) + keys.shape[1]


for step in range(args.steps):
    with torch.no_grad():
        state = batch()
        _, action = averaged(state)
    buffer.append((state, action))
    optimizer.zero_grad(set_to_none=True)
    for _ in range(4):
        x = batch()
        features, y = model(x)
        loss = (y - x).pow(2).mean() + 0.1 * penalty(batch())
        (loss / 4).backward()
    state, action = buffer[step % len(buffer)]
    (model(state)[1] - action).pow(2).mean().backward()
    optimizer.step()
    with torch.no_grad():
        for average, parameter in zip(averaged.parameters(), model.parameters()):
            average.lerp_(parameter, 0.1)
    print(f"step {step}: loss {loss.item():.6f}")
    if step % 10 == 9:
        best = copy.deepcopy(model.state_dict())
        print(f"validation: {validate()} tensors, {len(best)} weights kept")

print("done")
print("torch says: allocated", torch.cuda.memory_allocated(), "peak", torch.cuda.max_memory_allocated(), end=" ")
print("reserved", torch.cuda.memory_reserved())
