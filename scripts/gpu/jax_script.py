"""JAX: a small network trained with a jitted step. The allocator is chosen by XLA_PYTHON_CLIENT_ALLOCATOR."""
import sys
import time

import jax
import jax.numpy as jnp

# Which kernels autotuning takes differs from run to run: full precision and few digits hide it.
jax.config.update("jax_default_matmul_precision", "highest")
key = jax.random.PRNGKey(0)
keys = jax.random.split(key, 4)
sizes = [64, 256, 256, 8]
weights = [jax.random.normal(k, (m, n)) / m**0.5 for k, m, n in zip(keys, sizes, sizes[1:])]
x = jax.random.normal(keys[3], (1024, 64))
y = jnp.sin(x[:, :8])


def loss(w, x, y):
    for layer in w[:-1]:
        x = jnp.tanh(x @ layer)
    return ((x @ w[-1] - y) ** 2).mean()


@jax.jit
def step(w, x, y):
    value, gradient = jax.value_and_grad(loss)(w, x, y)
    return [p - 0.1 * g for p, g in zip(w, gradient)], value


for i in range(60):
    if i == 10:
        jax.block_until_ready(weights)
        start = time.perf_counter()
    weights, value = step(weights, x, y)
    if i % 20 == 19:
        print(f"loss {i}: {float(value):.3e}")
jax.block_until_ready(weights)
print(f"us_step={(time.perf_counter() - start) / 50 * 1e6:.0f}", file=sys.stderr)
print("eager:", int(sum((jnp.arange(1000 + i) * 2).sum() for i in range(20))))
print("device:", jax.devices()[0].platform)
