"""Every way in which Python calls Python: what is noted must be what is recorded. Twice: with the GIL released and held."""

import contextlib
import functools
import gc

import gpu
from gpu import touch


def recursion(n):
    if n == 0:
        return touch()
    return recursion(n - 1)


def mutual(n):
    def even(n):
        return touch() if n == 0 else odd(n - 1)

    def odd(n):
        return even(n - 1)

    even(2 * n)


def closures():
    a = 1

    def middle(b):
        def inner(c):
            nonlocal a
            a += c
            touch()
            return a + b + c

        return inner

    return middle(2)(3)


def generators():
    def numbers(n):
        for i in range(n):
            touch()
            yield i
        return n

    def delegating(n):
        got = yield from numbers(n)
        touch()
        yield got
        yield from (touch() or i for i in range(2))

    def receiving():
        got = None
        while True:
            got = yield got
            touch()

    total = sum(numbers(3)) + sum(delegating(3))
    r = receiving()
    next(r)
    total += r.send(5)
    with contextlib.suppress(ValueError):
        r.throw(ValueError("in a generator"))

    def closing():
        try:
            yield 1
        finally:
            touch()

    c = closing()
    next(c)
    c.close()
    # Hot enough that the interpreter specialises it.
    return total + sum(i for i in numbers(40))


def comprehensions():
    values = [touch() or i for i in range(2)]
    values += {touch() or i for i in range(2)}
    values += {i: touch() for i in range(2)}
    values += (touch() or i for i in range(2))
    values += [[touch() or i * j for i in range(2)] for j in range(2)][0]
    values += [f() for f in [lambda: touch() or 7 for _ in range(2)]]
    return sum(values)


def classes():
    class Meta(type):
        def __new__(mcs, name, bases, space):
            touch()
            return super().__new__(mcs, name, bases, space)

        def __call__(cls, *args):
            touch()
            return super().__call__(*args)

        def __prepare__(name, bases):
            touch()
            return {}

    class Base(metaclass=Meta):
        touch()

        def __init_subclass__(cls):
            touch()

        def __init__(self, x=0):
            touch()
            self.x = x

        class Inner:
            touch()

            def method(self):
                touch()

    class Child(Base):
        def __new__(cls, *args):
            touch()
            return super().__new__(cls)

        @property
        def value(self):
            touch()
            return self.x

        @value.setter
        def value(self, x):
            touch()
            self.x = x

        @staticmethod
        def static():
            touch()

        @classmethod
        def of_class(cls):
            touch()

        def __getattr__(self, name):
            touch()
            return name

        def __getitem__(self, i):
            touch()
            if i > 1:
                raise IndexError
            return i

        def __add__(self, other):
            touch()
            return self

        def __lt__(self, other):
            touch()
            return self.x < other.x

        def __bool__(self):
            touch()
            return True

        def __hash__(self):
            touch()
            return 1

        def __eq__(self, other):
            touch()
            return self is other

        def __iter__(self):
            touch()
            return iter((1, 2))

        def __call__(self):
            touch()

        def __enter__(self):
            touch()
            return self

        def __exit__(self, *_):
            touch()

    c = Child(3)
    c.value = c.value + 1
    c.static(), c.of_class(), c.unknown, c[1], c + c, c(), Base.Inner().method()
    assert c and {c: 1, Child(4): 2} and 1 in c and [*c] and min(c, Child(9)) and sorted([c, Child(1)])
    with c as d, d:
        touch()
    for _ in range(30):
        Child(1).value
    return c.value


def decorated():
    def loud(f):
        touch()

        @functools.wraps(f)
        def around(*args, **named):
            touch()
            return f(*args, **named)

        return around

    @loud
    @functools.lru_cache(maxsize=None)
    @loud
    def slow(n, *, k=0):
        touch()
        return n + k

    return slow(1, k=2) + slow(*(1,), **{"k": 2})


class Dying:
    def __init__(self):
        self.me = None

    def __del__(self):
        touch()


def dying():
    def taking(x):
        x = None
        touch()

    taking(Dying())
    x = Dying()
    x = 1
    len([Dying(), Dying()])
    y = Dying()
    y.me = y
    del y
    gc.collect()
    return x


def exceptions():
    def failing():
        raise KeyError(touch())

    seen = 0
    try:
        failing()
    except ValueError:
        pass
    except KeyError as e:
        touch()
        try:
            raise RuntimeError from e
        except RuntimeError:
            touch()
        finally:
            touch()
    else:
        touch()
    finally:
        touch()
    for _ in range(2):
        try:
            continue
        finally:
            seen += 1
            touch()
    try:
        return touch()
    finally:
        touch()


def lines():
    def several(*args, **named):
        touch()
        return args

    several(
        touch(),
        touch(
        ),
        several(
            1,
            touch(), k=touch(),
        ),
    )
    value = (
        len(several(touch()))
        +
        len(several(
            touch(), touch()
        )) +
        len(several())
    )
    text = f"""{
        touch()
    } and {several(
        1)}"""
    if (value
            and touch() is None
            or touch()):
        touch()
    (several
     (1)
     )
    obj = contextlib.ExitStack()
    (obj
     .callback(
         touch)
     )
    (obj.
        close(
        ))
    x = touch(); y = touch(); z = [touch(),
        touch()]
    while touch() is None: break
    assert touch() is None, \
        touch()
    return (value,
            touch(),
            len(text), x, y, z)


def long_function():
    """Lines far apart: large steps in the line table."""
    body = ["def far():", "  x = 0"]
    for step in (1, 2, 15, 16, 17, 127, 128, 129, 255, 256, 257, 1000, 40000):
        body += [""] * step + ["  x += t() or 1"]
    body += ["  x += (", *[""] * 200, "1 + 1"] + ["+ 1"] * 200 + [")", "  t()", "  return x"]
    # One line with much code.
    body[1] = "  x = 0; " + "; ".join(["x += 1 + len('%d' % x) - len('%d' % x)"] * 400) + "; t()"
    space = {"t": touch}
    exec("\n".join(body), space)
    return space["far"]()


def direct():
    """The call of the driver stands in the function itself."""
    import ctypes

    driver = gpu._use[0]
    place = ctypes.c_uint64()
    at = ctypes.addressof(place)
    gpu.must(driver.alloc(at, gpu.note()), "alloc")
    gpu.must(driver.free(place.value), "free")
    gpu.must((lambda: driver.alloc(at, gpu.note()))(), "alloc")
    gpu.must([driver.free(p) for p in [place.value]][0], "free")
    gpu.must(max(driver.alloc(at, gpu.note()) for _ in range(1)), "alloc")
    gpu.must(driver.free(place.value), "free")
    # What the driver refuses has a stack as well.
    return driver.alloc(at, gpu.note(refused=True) * (1 << 40))


def importing():
    import importlib
    import sys

    sys.modules.pop("imported", None)
    import imported

    importlib.reload(imported)
    return imported.VALUE


for driver in gpu.drivers:
    gpu.use(driver)
    print(recursion(20), mutual(4), closures(), generators(), comprehensions())
    print(classes(), decorated(), dying(), exceptions(), lines(), long_function(), direct(), importing())
