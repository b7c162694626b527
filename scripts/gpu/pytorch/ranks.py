"""A rank of a distributed job, for torchrun: torchrun --standalone --nproc-per-node 2 ranks.py ddp|fsdp|oom

oom: every rank fills its card before the first collective, so that NCCL finds no memory for itself.
"""
import os

import exhausted
import models
import tell
import torch
import torch.distributed as dist

args = tell.begin("ddp", "fsdp", "oom")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device, small = args.device, args.small
if device.type == "cuda":
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
tell.prefix = f"rank {rank} "
width = 64 if small else 512


def init():
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


def train(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)

    def step(i):
        x = torch.randn(8, 64 + 16 * (i % 4), width, device=device)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    for i, loss in enumerate(tell.timed(device, step, 4 if small else 16, 1 if small else 4)):
        tell.say(f"loss {i}", loss)


def ddp():
    init()
    ids = [device.index] if device.type == "cuda" else None
    train(torch.nn.parallel.DistributedDataParallel(models.transformer(width, 4).to(device), device_ids=ids))


def fsdp():
    init()
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed.fsdp import FullyShardedDataParallel

        tell.note("FullyShardedDataParallel")
        train(FullyShardedDataParallel(models.transformer(width, 4).to(device)))
        return
    tell.note("fully_shard")
    model = models.transformer(width, 4).to(device)
    if device.type == "cuda":
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    train(model)


def oom():
    if device.type != "cuda":
        tell.skip("oom needs a GPU")
    init()
    x = torch.ones(1 << 20, device=device)
    kept = exhausted.fill(device)
    try:
        dist.all_reduce(x)
        torch.cuda.synchronize()
        tell.say("all_reduce", "worked on a full card")
    except Exception as e:
        tell.say("all_reduce", exhausted.kind(e))
    del kept
    tell.lines.append(f"# {len(tell.lines)} lines")
    os.write(1, ("\n".join(tell.lines) + "\n").encode())
    os._exit(0)  # a communicator that failed cannot be taken down in good order


{"ddp": ddp, "fsdp": fsdp, "oom": oom}[args.what]()
tell.end()
dist.destroy_process_group()
