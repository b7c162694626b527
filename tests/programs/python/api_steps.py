"""Regions around what goes on in steps: generators, coroutines and asynchronous generators."""

import asyncio
import gc
import inspect
import threading
import weakref

import vramscope
from api_driver import MB, alloc, free, start

start()


@vramscope.region("gen")
def numbers(n):
    """Its text."""
    got = yield alloc(MB)
    assert got == "sent"
    try:
        p = alloc(2 * MB)
        yield 2
    except KeyError:
        alloc(3 * MB)
        yield "caught"
    finally:
        free(p)
        free(alloc(4 * MB))
    return n


@vramscope.region("co")
async def waits(n):
    p = alloc(MB)
    try:
        await asyncio.sleep(n)
    finally:
        free(p)
        free(alloc(2 * MB))
    return n


@vramscope.region("agen")
async def more():
    got = yield alloc(MB)
    assert got == "sent"
    await asyncio.sleep(0)
    try:
        yield alloc(2 * MB)
    except KeyError:
        alloc(3 * MB)
        yield "caught"


def through():
    return (yield from numbers(7))


g = through()
next(g)
alloc(9 * MB)
assert g.send("sent") == 2 and g.throw(KeyError("x")) == "caught"
try:
    next(g)
    raise AssertionError("it goes on")
except StopIteration as e:
    assert e.value == 7
assert inspect.isgeneratorfunction(numbers) and numbers.__doc__ == "Its text."
assert inspect.iscoroutinefunction(waits) and inspect.isasyncgenfunction(more)
alloc(9 * MB)


async def cancelled():
    task = asyncio.ensure_future(waits(60))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
        raise AssertionError("it goes on")
    except asyncio.CancelledError:
        pass


async def stepped():
    g = more()
    await g.__anext__()
    alloc(9 * MB)
    await g.asend("sent")
    assert await g.athrow(KeyError("x")) == "caught"
    async for _ in g:
        raise AssertionError("it goes on")


asyncio.run(cancelled())
alloc(9 * MB)
asyncio.run(stepped())
alloc(9 * MB)


# What an exception passed goes at once: a frame that held its own exception would keep it until the collector comes.
@vramscope.region("thrown")
def thrown(kept):
    class Large:
        pass

    large = Large()
    kept.append(weakref.ref(large))
    yield large


gc.disable()
kept = []
g = thrown(kept)
next(g)
try:
    g.throw(ValueError("x"))
except ValueError:
    pass
del g
assert kept[0]() is None


# Closed by another thread than it ran in, or never begun: the region stays that thread's.
def holds():
    with vramscope.region("held"):
        yield alloc(MB)


@vramscope.region("never begun")
def never():
    yield


g = holds()
next(g)
alloc(9 * MB)
errors = []


def closes():
    try:
        g.close()
        never().close()
    except BaseException as e:
        errors.append(e)


t = threading.Thread(target=closes)
t.start()
t.join()
assert not errors, errors
print("done")
