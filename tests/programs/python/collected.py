"""The collector runs at nearly every allocation of an object, and what it finds calls the driver as it dies: in the middle of calls,
of the beginning of a function, of making a generator."""

import gc

import gpu


class Dying:
    def __init__(self):
        self.me = self

    def __del__(self):
        gpu.touch()


def leave_some():
    Dying()


def cells(a, b):
    c = [a]

    def inner():
        return a, b, c

    return inner


def numbers(n):
    cell = n

    def inner():
        return cell

    yield inner()
    leave_some()
    yield [x for x in (inner(), inner())]


async def later(n):
    return (lambda: n)()


def await_it(c):
    try:
        c.send(None)
    except StopIteration as stop:
        return stop.value


class Made:
    def __init__(self, *args, **named):
        self.args, self.named = args, named


def work(i):
    leave_some()
    f = cells(i, [i])
    leave_some()
    g = list(numbers(i))
    leave_some()
    c = later(i)
    leave_some()
    m = Made(i, [], k={})
    leave_some()
    return f()[0] + g[0] + await_it(c) + m.args[0] + sum({x: [x] for x in range(2)}) + len([(x, [x]) for x in range(3)])


def main():
    gc.set_threshold(2, 1, 1)
    total = sum(work(i) for i in range(12))
    for driver in gpu.drivers:
        gpu.use(driver)
        total += work(1)
    gc.set_threshold(1000)
    gc.collect()
    return total


print(main())
