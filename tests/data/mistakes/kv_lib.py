import torch
class Block(torch.nn.Module):
    def __init__(self, d=1024):
        super().__init__()
        self.qkv = torch.nn.Linear(d, 3 * d)
        self.o = torch.nn.Linear(d, d)
        self.k = self.v = None
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        self.k = k if self.k is None else torch.cat([self.k, k], 1)  # grows
        self.v = v if self.v is None else torch.cat([self.v, v], 1)  # grows
        a = torch.softmax(q @ self.k.transpose(1, 2), -1) @ self.v
        return x + self.o(a)
