"""Training loops, deterministic as far as PyTorch can: losses, a checksum of the weights, statistics.

    train.py transformer|resnet|gpt2
"""
import models
import tell
import torch

args = tell.begin("transformer", "resnet", "gpt2")
device, small = args.device, args.small


def transformer():
    width = 64 if small else 512
    model = models.transformer(width, 2 if small else 6).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(i):
        x = torch.randn(4 if small else 16, 64 + 48 * (i % 4), width, device=device)
        loss = (model(x) - x.roll(1, 1)).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, tell.timed(device, step, 6 if small else 40, 2 if small else 8)


def resnet():
    name, model = models.resnet50()
    tell.note(f"resnet50 {name}")
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    def step(i):
        x = torch.randn(2 if small else 32, 3, *[64 if small else 224] * 2, device=device)
        y = torch.randint(0, 1000, (len(x),), device=device)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, tell.timed(device, step, 3 if small else 16, 1 if small else 4)


def gpt2():
    name, model, vocabulary = models.gpt2(small)
    tell.note(f"gpt2 {name}")
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))

    def step(i):
        tokens = torch.randint(0, vocabulary, (2 if small else 4, 65 if small else 513), device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return model, tell.timed(device, step, 3 if small else 16, 1 if small else 4)


model, losses = {"transformer": transformer, "resnet": resnet, "gpt2": gpt2}[args.what]()
for i, loss in enumerate(losses):
    tell.say(f"loss {i}", loss.item())
tell.say("weights", tell.checksum(model))
tell.end()
