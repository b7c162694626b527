"""asyncio: tasks, asynchronous generators, and work handed to threads."""

import asyncio
import gpu
from gpu import touch


async def leaf(n):
    touch()
    await asyncio.sleep(0)
    touch()
    return n


async def tree(n):
    if n == 0:
        return await leaf(n)
    left = await tree(n - 1)
    touch()
    return left + await asyncio.ensure_future(leaf(n))


async def numbers(n):
    for i in range(n):
        touch()
        yield i
        await asyncio.sleep(0)
    touch()


class Awaited:
    def __await__(self):
        touch()
        got = yield from leaf(3).__await__()
        touch()
        return got


class Room:
    async def __aenter__(self):
        touch()
        return await leaf(1)

    async def __aexit__(self, *_):
        await leaf(2)
        touch()


async def cancelled(n):
    if n:
        return await cancelled(n - 1)
    try:
        await asyncio.sleep(60)
    finally:
        touch()


def in_thread():
    gpu._use[0].enter()
    touch()
    return 1


async def main():
    total = sum(await asyncio.gather(*(tree(i) for i in range(4))))
    total += sum([i async for i in numbers(3)])
    async for i in numbers(2):
        total += touch() or i
    total += await Awaited()
    async with Room() as r:
        total += r
    early = numbers(5)
    async for _ in early:
        break
    await early.aclose()
    late = asyncio.ensure_future(asyncio.sleep(60))
    late.add_done_callback(lambda _: touch())
    late.cancel()
    try:
        await late
    except asyncio.CancelledError:
        touch()
    # The exception passes through coroutines that no call runs: there are more frames than calls.
    waiting = asyncio.ensure_future(cancelled(5))
    await asyncio.sleep(0)
    waiting.cancel()
    try:
        await waiting
    except asyncio.CancelledError:
        touch()
    asyncio.get_running_loop().call_soon(touch)
    total += await asyncio.get_running_loop().run_in_executor(None, in_thread)
    total += await asyncio.wait_for(tree(1), 20)
    return total


for driver in gpu.drivers:
    gpu.use(driver)
    print(asyncio.run(main()))
    # By hand, without a loop.
    by_hand = leaf(9)
    try:
        while True:
            by_hand.send(None)
    except StopIteration as stop:
        print(stop.value)
