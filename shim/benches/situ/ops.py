"""Small training programs whose stacks look unlike one another."""

import torch
from torch import nn


def _backward(value):
    value.float().pow(2).mean().backward()


def convolution():
    first = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    net = nn.Sequential(first, nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.GELU())
    _backward(net(torch.randn(4, 3, 20, 20)))


def recurrent(dtype=torch.float):
    for kind in (nn.LSTM, nn.GRU):
        out, _ = kind(16, 24, num_layers=2, batch_first=True, dtype=dtype)(torch.randn(3, 5, 16, dtype=dtype))
        _backward(out)


def recurrent_in_double():
    """Which oneDNN does not do."""
    recurrent(torch.double)


def attention():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1)
    _backward(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)(torch.randn(2, 9, 32)))
    query = torch.randn(2, 4, 8, 16, requires_grad=True)
    _backward(nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True))


@torch.jit.script
def _scripted(x: torch.Tensor, turns: int) -> torch.Tensor:
    for i in range(turns):
        x = torch.tanh(x @ x.t()) @ x + float(i)
    return x


def script():
    _backward(_scripted(torch.randn(6, 6, requires_grad=True), 3))


def decomposition():
    x = torch.randn(12, 12, requires_grad=True)
    _backward(torch.linalg.svd(x, full_matrices=False).S)
    _backward(torch.linalg.solve(x + 12 * torch.eye(12), x))
    torch.linalg.eigh(x.detach() @ x.detach().t())
    torch.linalg.qr(x.detach())


def fourier():
    x = torch.randn(8, 64, requires_grad=True)
    _backward(torch.fft.irfft(torch.fft.rfft(x) * 2))
    torch.fft.fft2(torch.randn(3, 16, 17))
    torch.stft(torch.randn(400), 64, window=torch.hann_window(64), return_complex=True)


def order():
    x = torch.randn(2000, requires_grad=True)
    _backward(torch.sort(x).values)
    _backward(x.topk(20).values)
    torch.unique(torch.randint(0, 50, (3000,)), return_inverse=True)
    torch.cumsum(x, 0), x.nonzero(), x[x > 0], torch.histc(x.detach())


def mapped():
    weight = torch.randn(5, 7)
    function = torch.func.grad(lambda w, x: torch.tanh(w @ x).sum())
    torch.func.vmap(function, in_dims=(None, 0))(weight, torch.randn(6, 7))
    torch.func.jacrev(lambda x: torch.sin(x).cumsum(0))(torch.randn(5))


def parallel():
    """Large enough for the second thread."""
    x = torch.randn(300, 400, requires_grad=True)
    _backward(torch.softmax(x, 1).exp().sum(1) + torch.layer_norm(x, (400,)).amax(1))
    _backward(nn.functional.embedding_bag(torch.randint(0, 300, (64, 20)), x))
    torch.nn.functional.interpolate(torch.randn(2, 3, 40, 40), scale_factor=2, mode="bicubic")


class _Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].exp()


def custom():
    """Python code under C++ code under Python code."""
    x = torch.randn(30, requires_grad=True)
    x.register_hook(lambda gradient: gradient * 2)
    _backward(_Custom.apply(x))
    torch.utils.checkpoint.checkpoint(lambda y: _Custom.apply(y).sin(), x, use_reentrant=True).sum().backward()


ALL = [
    convolution,
    recurrent,
    recurrent_in_double,
    attention,
    script,
    decomposition,
    fourier,
    order,
    mapped,
    parallel,
    custom,
]
# Under any signal handler on the thread's own stack, even Python's own and without us, the backward pass of oneDNN's
# LSTM damages the heap in torch 2.6.0.
BEAR_SIGNALS = [operation for operation in ALL if operation is not recurrent]
