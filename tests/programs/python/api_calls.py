"""The package's calls, each checked against what the program knows."""

import os
import threading
import time
import warnings

import vramscope

vramscope.set_limit(0.25)  # Neither the driver nor the device is there yet.
from api_driver import MB, alloc, free, start  # noqa: E402

assert vramscope.active() is True
assert vramscope.stats() == {} and set(vramscope.stats(5).values()) == {0}  # no context yet
start()
p = alloc(10 * MB)
assert vramscope.stats(0)["limit"] == 256 * MB
vramscope.set_limit(None)
s = vramscope.stats(0)
assert vramscope.stats() == {0: s}


def refused(error, call, *arguments):
    try:
        call(*arguments)
    except error as e:
        return str(e)
    raise AssertionError(f"{call.__name__}{arguments} is no {error.__name__}")


for missing in (5, -1, 2**40, "x", 0.0, True):
    for call in (vramscope.stats, vramscope.reset_peak, lambda device: vramscope.set_limit(MB, device)):
        assert "device" in refused(ValueError, call, missing)
assert s["allocated"] == s["active"] == s["reserved"] == s["pool_active"] == 10 * MB, s
assert s["inactive"] == s["pool_inactive"] == s["tensors"] == s["pinned"] == s["limit"] == 0 and s["allocations"] == 1
q = alloc(20 * MB)
free(q)
s = vramscope.stats(0)
assert s["allocated"] == 10 * MB and s["allocated_peak"] == s["reserved"] == 30 * MB and s["inactive"] == 20 * MB
vramscope.reset_peak()
assert vramscope.stats(0)["allocated_peak"] == 10 * MB
assert vramscope.empty_cache() == 20 * MB and vramscope.empty_cache() == 0
vramscope.reset_peak(0)
assert vramscope.stats(0)["reserved_peak"] == 10 * MB

vramscope.set_limit(50 * MB)
assert vramscope.stats(0)["limit"] == 50 * MB and alloc(60 * MB) == -2
free(alloc(40 * MB))
vramscope.set_limit(0.5, device=0)
assert vramscope.stats(0)["limit"] == 512 * MB
free(alloc(60 * MB))
vramscope.set_limit(1.0)
vramscope.set_limit(None)
assert vramscope.stats(0)["limit"] == 0
for wrong in (-1, 1.5, 0, 0.0, float("nan"), 2**64, True, "24GiB", [1]):
    assert "None for no limit" in refused(ValueError, vramscope.set_limit, wrong)

vramscope.snapshot("live.jsonl.zst")
try:
    vramscope.snapshot("no/such/folder.jsonl")
    raise AssertionError("no such folder")
except OSError as e:
    assert "no/such" in str(e)
assert "NUL" in refused(ValueError, vramscope.snapshot, "cut\0short") and not os.path.exists("cut")

# A callback in a thread of its own, once a failure; one that raises, or wants to end the thread, does not end the others.
heard, threads = [], set()
other = threading.Event()
leaves = threading.Event()


def callback():
    heard.append(1)
    threads.add(threading.current_thread().name)


def fails():
    other.set()
    raise RuntimeError("of the callback's own")


def leaves_thread():
    leaves.set()
    raise SystemExit(3)


refused(TypeError, vramscope.on_oom, 3)
# Where no thread can be had nobody is called, which is said, and no more.
real_start, threading.Thread.start = threading.Thread.start, lambda _: (_ for _ in ()).throw(RuntimeError("no thread"))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    vramscope.on_oom(heard.append)()
assert len(said) == 1 and "no thread" in str(said[0].message) and said[0].filename == __file__, said
threading.Thread.start = real_start

remove_fails = vramscope.on_oom(fails)
remove_leaves = vramscope.on_oom(leaves_thread)
remove = vramscope.on_oom(callback)


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


assert alloc(2000 * MB) == -2
within(10, lambda: len(heard) == 1)
assert other.is_set() and leaves.is_set() and threads == {"vramscope-oom"}
remove_fails()
remove_leaves()
assert alloc(2000 * MB) == -2
within(10, lambda: len(heard) == 2)
remove()
remove()
assert alloc(2000 * MB) == -2
time.sleep(0.1)
assert len(heard) == 2
# And again after all were taken away, also at once.
again = []
vramscope.on_oom(lambda: again.append(1))
time.sleep(0.05)
assert alloc(2000 * MB) == -2
within(10, lambda: len(again) == 1)
time.sleep(0.1)
assert len(again) == 1
vramscope.on_oom(None)
assert alloc(2000 * MB) == -2
time.sleep(0.1)
assert len(again) == 1

child = os.fork()
if child == 0:
    ok = vramscope.active() is False and vramscope.stats() == {}
    with vramscope.region("child"):
        vramscope.mark("child")
    os._exit(0 if ok else 1)
assert os.waitpid(child, 0)[1] == 0
free(p)
print("done")
