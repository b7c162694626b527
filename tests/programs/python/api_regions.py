"""Regions: nested, left by an exception, as decorator and its recursion, in threads; one in which nothing happens."""

import threading

import vramscope
from api_driver import MB, alloc, start

start()


def inside():
    assert alloc(MB) > 0


with vramscope.region("step"):
    with vramscope.region("forward"):
        inside()
    with vramscope.region("nothing"):
        pass
    try:
        with vramscope.region("raises"):
            inside()
            raise KeyError("x")
    except KeyError:
        pass
    vramscope.mark("after")


@vramscope.region("decorated")
def recursive(depth):
    """Its text."""
    inside()
    return recursive(depth - 1) if depth else depth


assert recursive(1) == 0 and recursive.__name__ == "recursive"

shared = {name: vramscope.region(name) for name in ("one", "two")}


def thread(name):
    start()
    with shared[name]:
        inside()


for name in shared:
    t = threading.Thread(target=thread, args=(name,))
    t.start()
    t.join()
print("done")
