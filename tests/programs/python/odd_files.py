"""Code whose file name is a subclass of str: its text is not where a str's is."""

import gpu


class Name(str):
    pass


for _ in range(50):
    gpu.touch()
for size in (1, 400, 1_000_000):
    code = compile("gpu.touch()", Name("x" * size), "exec")
    exec(code, {"gpu": gpu})
print("alive")
