"""Runs into out of memory on purpose: PyTorch frees its cache, tries again, and goes on; a program may catch the error."""
import torch

free, total = torch.cuda.mem_get_info()
block = torch.empty(total // 3, dtype=torch.uint8, device="cuda")
cached = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(total // 4 // (64 << 20))]
del cached
big = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
print("half the card after freeing a quarter: ok")
try:
    torch.empty(total // 2, dtype=torch.uint8, device="cuda")
    print("more than there is: ok")
except torch.OutOfMemoryError as e:
    print("more than there is: OutOfMemoryError")
del block, big
torch.cuda.empty_cache()
free2, total = torch.cuda.mem_get_info()
print("everything is back:", free - free2 < 256 << 20)
again = torch.ones(total // 2, dtype=torch.uint8, device="cuda")
print("half the card again:", int(again[-1]))
