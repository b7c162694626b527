"""Functions that are traced, profiled or monitored: the interpreter runs other instructions, the lines stay right. The tracing
functions call the driver too. The argument says which kind."""

import sys
import threading

import gpu
from gpu import touch

MINE = __file__
busy = threading.local()


def look():
    """What a tracing function does, without being traced itself."""
    if not getattr(busy, "now", False):
        busy.now = True
        touch()
        busy.now = False


def tracer(frame, event, arg):
    if frame.f_code.co_filename == MINE and frame.f_code is not look.__code__:
        look()
        frame.f_trace_opcodes = OPCODES
        return tracer


def profiler(frame, event, arg):
    if frame.f_code.co_filename == MINE and event in ("call", "return"):
        look()


def recursion(n):
    if n == 0:
        return touch()
    x = recursion(n - 1)
    touch()
    return x


def numbers(n):
    for i in range(n):
        touch()
        yield i


def loops():
    total = 0
    for i in range(3):
        total += i
        touch()
        if i == 1:
            continue
        total += 1
    while total > 4:
        total -= 1
        touch()
    values = [touch() or i for i in numbers(2)]
    try:
        raise ValueError(touch())
    except ValueError:
        touch()
    finally:
        touch()
    return total + sum(values)


class C:
    touch()

    def __init__(self):
        touch()

    def method(self):
        return max([1, 2], key=lambda x: touch() or x)


def body():
    before = touch()
    recursion(4)
    return (before, loops(), C().method(), sorted([2, 1], key=lambda x: touch() or x))


def monitored(events):
    monitoring = sys.monitoring
    tool = monitoring.DEBUGGER_ID
    monitoring.use_tool_id(tool, "test")

    def seen(code, *_):
        if code.co_filename == MINE and code is not look.__code__ and code is not seen.__code__:
            look()

    one = 1
    while one <= events:
        if events & one:
            monitoring.register_callback(tool, one, seen)
        one <<= 1
    monitoring.set_events(tool, events)
    result = body()
    monitoring.set_events(tool, 0)
    monitoring.free_tool_id(tool)
    return result


OPCODES = False
kind = sys.argv[1]
for driver in gpu.drivers:
    gpu.use(driver)
    if kind == "trace" or kind == "opcodes":
        OPCODES = kind == "opcodes"
        sys.settrace(tracer)
        print(body())
        sys.settrace(None)
    elif kind == "profile":
        sys.setprofile(profiler)
        print(body())
        sys.setprofile(None)
    elif kind == "both":
        sys.setprofile(profiler)
        sys.settrace(tracer)
        print(body())
        sys.settrace(None)
        sys.setprofile(None)
    elif kind == "monitor":
        e = sys.monitoring.events
        print(monitored(e.LINE), monitored(e.PY_START | e.PY_RETURN | e.PY_YIELD | e.PY_RESUME | e.CALL | e.JUMP))
        print(monitored(e.INSTRUCTION | e.LINE))
    print(body())
