"""A tensor of every step is kept in a list, on the GPU, for as long as the list lives.

Memory: grows by one prediction a step, for ever.
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
predictions = []

for step in range(args.steps):
    x = torch.randn(512, args.size, device=args.device)
    prediction = model(x)  # grows: what is kept was made here
    loss = (prediction - x).pow(2).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    # WRONG: the prediction stays on the GPU until the list goes. detach() lets go of the graph, not of the numbers.
    # Instead: predictions.append(prediction.detach().cpu()), or keep the one number that is wanted, with .item().
    predictions.append(prediction.detach())
    print(f"step {step}: loss {loss.item():.6f}")

print(f"done: {len(predictions)} predictions kept")
print("torch says: allocated", torch.cuda.memory_allocated(), "peak", torch.cuda.max_memory_allocated(), end=" ")
print("reserved", torch.cuda.memory_reserved())
