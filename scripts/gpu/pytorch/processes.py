"""Processes beside the one that trains.

    processes.py fork|spawn    DataLoader workers started so: they touch no GPU and must leave no history
    processes.py share         a tensor on the GPU handed to another process by IPC, and changed there
"""
import models
import tell
import torch


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.randn(32, 64, generator=torch.Generator().manual_seed(i))


def workers(device, how):
    model = models.transformer(64, 2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=8, num_workers=2, pin_memory=device.type == "cuda", multiprocessing_context=how
    )
    for epoch in range(2):
        for i, x in enumerate(loader):
            x = x.to(device, non_blocking=True)
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            tell.say(f"loss {epoch}.{i}", loss.item())


def receiver(device, tensors, answers):
    tell.deterministic()
    tell.prefix = "receiver "
    while (t := tensors.get()) is not None:
        answers.put(float(t.double().sum()))
        t.mul_(2)
        own = t + 1
        total = float(own.double().sum())
        del t, own  # before the sender goes on: its memory is free again only then
        tell.wait(device)
        answers.put(total)
    tell.end()


def share(device):
    spawn = torch.multiprocessing.get_context("spawn")
    tensors, answers = spawn.Queue(), spawn.Queue()
    other = spawn.Process(target=receiver, args=(device, tensors, answers))
    other.start()
    for i, n in enumerate((1000, 1 << 20, 5 << 20)):
        t = torch.arange(n, device=device, dtype=torch.float32)
        tell.wait(device)
        tensors.put(t)
        tell.say(f"received {i}", answers.get(timeout=60))
        tell.say(f"changed there {i}", answers.get(timeout=60))
        tell.say(f"seen here {i}", float(t.double().sum()))
    tensors.put(None)
    other.join(60)
    tell.say("receiver ended with", other.exitcode)


if __name__ == "__main__":
    args = tell.begin("fork", "spawn", "share")
    if args.what == "share":
        share(args.device)
    else:
        workers(args.device, args.what)
    tell.end()
