"""A child forked before CUDA is used: it and its parent use it each, and are watched each."""

import os
import threading

import vramscope
from api_driver import MB, alloc, start

heard = threading.Event()
vramscope.on_oom(heard.set)
child = os.fork()
name = "parent" if child else "child"
assert vramscope.active() is True
start()
with vramscope.region(name):
    assert alloc(MB) > 0
vramscope.mark(name)
assert vramscope.stats(0)["allocated"] == MB
assert alloc(5000 * MB) == -2 and heard.wait(30)
# Now it is too late for another.
grandchild = os.fork()
if grandchild == 0:
    vramscope.on_oom(None)
    os._exit(0 if vramscope.active() is False and vramscope.stats() == {} else 1)
assert os.waitpid(grandchild, 0)[1] == 0
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("done")
