"""Models of well-known shapes in plain PyTorch, for machines that have no torchvision and no transformers."""
import torch
from torch import nn


def transformer(width=512, layers=6):
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )  # fmt: skip
        self.short = nn.Identity()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return torch.relu_(self.body(x) + self.short(x))


def resnet50():
    """Its name, and the model."""
    try:
        from torchvision.models import resnet50 as known

        return "torchvision", known(weights=None)
    except Exception:  # not there, or made for another PyTorch
        pass
    stages, inside = [], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            stages.append(Bottleneck(inside, width, stride if i == 0 else 1))
            inside = 4 * width
    stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    return "by hand", nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT2(nn.Module):
    """12 layers of 768, 1024 positions, a vocabulary of 50257: 124 million weights."""

    def __init__(self, layers=12, width=768, heads=12, vocabulary=50257, positions=1024):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False).logits


def gpt2(small=False):
    """Its name, the model, and its vocabulary."""
    if small:
        return "by hand, small", GPT2(2, 64, 2, 1000, 128), 1000
    try:
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        return "transformers", Logits(GPT2LMHeadModel(config)), config.vocab_size
    except Exception:
        return "by hand", GPT2(), 50257
