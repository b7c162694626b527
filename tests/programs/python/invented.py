"""Programs that nobody would write: random statements over random lines, nested and calling one another. The argument seeds."""

import random
import sys

import gpu

rng = random.Random(int(sys.argv[1]))


class Writer:
    """Writes a module. `t(...)` calls the driver and returns 1; depth is what may still be nested."""

    def __init__(self):
        self.names = []
        self.lines = []

    def put(self, indent, text):
        self.lines += [""] * (0 if rng.random() < 0.6 else rng.choice([1, 2, 5, 17, 70, 130, 300]))
        first, *rest = text.split("\n")
        self.lines.append("    " * indent + first)
        self.lines += rest

    def space(self):
        """Where an expression may go on: here, or some lines further down."""
        return rng.choice(["", "", " ", "\n", "\n\n", "\n" * rng.randint(1, 140)])

    def expression(self, depth):
        s = self.space
        if depth <= 0:
            return rng.choice(["t(%s)" % s(), "1", "t()", "(t%s)()" % s()])
        e = lambda: self.expression(depth - 1)  # noqa: E731
        return rng.choice(
            [
                lambda: "(%s%s +%s %s)" % (s(), e(), s(), e()),
                lambda: "sum(%s[%s, %s%s])" % (s(), e(), s(), e()),
                lambda: "sum(%s for x in range(%s + 1))" % (e(), e()),
                lambda: "len([%s%s for x in (%s,%s 2) if %s%s])" % (s(), e(), e(), s(), e(), s()),
                lambda: "len({%s%s: %s%s})" % (e(), s(), s(), e()),
                lambda: "(lambda *a:%s %s)(%s%s)" % ("", "(%s%s)" % (s(), e()), s(), e()),
                lambda: "max([0, %s%s], key=lambda x: (%s %s))" % (s(), e(), s(), e()),
                lambda: "(%s%s if %s%s else%s %s)" % (s(), e(), s(), e(), s(), e()),
                lambda: "len(f'{(%s)}{t()} {(%s)}')" % tuple(self.expression(0).replace("\n", "") for _ in range(2)),
                lambda: "pick(%s%s,%s k=%s)" % (s(), e(), s(), e()),
                lambda: "pick(%s*[%s],%s **{'k': %s%s})" % (s(), e(), s(), s(), e()),
                lambda: "C(%s%s)%s[%s%s].value" % (s(), e(), "", s(), e()),
                lambda: "(%s(%s%s))" % (rng.choice(self.names), s(), e()) if self.names else e(),
                lambda: "(%s%s and%s %s%s)" % (e(), s(), s(), e(), s()),
            ]
        )()

    def statement(self, indent, depth):
        e = lambda: self.expression(rng.randint(0, 2))  # noqa: E731
        inner = lambda: self.block(indent + 1, depth - 1)  # noqa: E731
        kind = rng.randrange(12) if depth > 0 else rng.randrange(3)
        if kind <= 1:
            self.put(indent, "x = (%s)" % e())
        elif kind == 2:
            self.put(indent, "(%s); x = (%s); t()" % (e(), e()))
        elif kind == 3:
            self.put(indent, "if (%s):" % e())
            inner()
            self.put(indent, "else:")
            inner()
        elif kind == 4:
            self.put(indent, "for y in range((%s) %% 3):" % e())
            inner()
        elif kind == 5:
            self.put(indent, "try:")
            inner()
            self.put(indent + 1, rng.choice(["raise ValueError((%s))", "x = [(%s)][5]", "(%s)"]) % e())
            self.put(indent, "except (ValueError, pick(IndexError)):")
            inner()
            self.put(indent, "finally:")
            inner()
        elif kind == 6:
            self.put(indent, "with C((%s)) as z, C(\n2):" % e())
            inner()
        elif kind == 7:
            name = "g%d" % rng.randrange(1000)
            self.put(indent, "def %s(n=(%s)):" % (name, e()))
            self.put(indent + 1, "got = yield (%s)" % e())
            inner()
            self.put(indent + 1, "yield from (1, (%s))" % e())
            self.put(indent, "x = len(list(%s()))" % name)
        elif kind == 8:
            self.put(indent, "@pick\n" + "    " * indent + "@(lambda f: t() and f)" if sys.version_info >= (3, 9) else "@pick")
            name = "D%d" % rng.randrange(1000)
            self.put(indent, "class %s(C):" % name)
            inner()
            self.put(indent, "x = %s((%s)).value" % (name, e()))
        elif kind == 9:
            name = "h%d" % rng.randrange(1000)
            self.put(indent, "async def %s():" % name)
            inner()
            self.put(indent + 1, "return (%s)" % e())
            self.put(indent, "try: %s().send(None)\n%sexcept StopIteration as s: x = s.value" % (name, "    " * indent))
        elif kind == 10:
            name = "n%d" % rng.randrange(1000)
            self.put(indent, "def %s(a, b=1, *c, k=(%s)):" % (name, e()))
            self.put(indent + 1, "cell = a")
            inner()
            self.put(indent + 1, "return (lambda: (cell + (%s)))()" % e())
            self.put(indent, "x = %s((%s))" % (name, e()))
        else:
            self.put(indent, "while True:")
            inner()
            self.put(indent + 1, "if (%s) or t(): break" % e())

    def block(self, indent, depth):
        for _ in range(rng.randint(1, 2)):
            self.statement(indent, depth)

    def module(self):
        for i in range(3):
            name = "f%d" % i
            self.put(0, "def %s(n=0):" % name)
            self.put(1, "x = 1")
            self.block(1, 2)
            self.put(1, "return (%s)" % self.expression(1))
            self.names.append(name)
        self.block(0, 2)
        self.put(0, "x = (%s)" % self.expression(3))
        return "\n".join(self.lines) + "\n"


HEAD = """
class C:
    def __init__(self, value):
        self.value = value; t()
    def __getitem__(self, i):
        t()
        return self
    def __enter__(self): return t()
    def __exit__(self, *_): t()
def pick(a, *b, k=None):
    t()
    return a
"""

left = [0]


class Enough(BaseException):
    """Programs explode: this one has run for long enough."""


def t():
    left[0] -= 1
    if left[0] >= 0:
        gpu.touch()
    elif left[0] < -300:
        raise Enough
    return 1


total = 0
for number in range(12):
    source = Writer().module()
    space = {"t": t}
    exec(compile(HEAD, "head %d" % number, "exec"), space)
    left[0] = 40
    try:
        exec(compile(source, "invented %s %d" % (sys.argv[1], number), "exec"), space)
        total += 1
    except (Exception, Enough) as e:
        # Invented programs are not all right.
        print(type(e).__name__)
print(total)
