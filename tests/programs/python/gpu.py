"""What the programs share: the driver through ctypes, and notes of what `sys._getframe()` says at each call of it.

Every request has a size of its own, by which the test finds its event in the history. A note is a line of JSON in the file
`notes` of the working folder, written at once: `frames` are the Python frames from the one that calls the driver outwards, each
[function, file, line]. `note()` and `leave()` stand among the arguments of the call that they describe, on the same line.
"""

import itertools
import json
import os
import sys

# Set by a program that has another way into the driver (`embed.c`, where ctypes can't be imported).
try:
    import ctypes
except ImportError:
    ctypes = None

_numbers = itertools.count(int(os.environ.get("FIRST_NUMBER", "0")))
_notes = os.open("notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def clean(text):
    """A text as JSON can hold it: half of a surrogate pair has no UTF-8."""
    return "".join("\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in text)


if sys.version_info < (3, 10):
    from dis import findlinestarts
else:
    findlinestarts = None


def line_of(frame, *, _starts=findlinestarts):
    """The line that a frame runs. (In 3.9 `f_lineno` of a traced frame is that of the last event, maybe from before a `yield`.)"""
    if _starts is None or frame.f_trace is None:
        return frame.f_lineno
    line = frame.f_code.co_firstlineno
    for start, number in _starts(frame.f_code):
        if start <= frame.f_lasti:
            line = number
    return line


def outwards(frame, *, _clean=clean, _line=line_of):
    """The frames from this one outwards."""
    frames = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        frames.append([_clean(name), _clean(code.co_filename), _line(frame)])
        frame = frame.f_back
    return frames


def write(*, _write=os.write, _encode=json.JSONEncoder().encode, _file=_notes, **what):
    """Writes a note."""
    _write(_file, _encode(what).encode() + b"\n")


# (The defaults of these are still there when the interpreter has emptied the modules.)
def note(*, depth=1, _next=_numbers.__next__, _frame=sys._getframe, _ending=sys.is_finalizing, _write=write, _out=outwards, **more):
    """Notes who calls, and returns the size to ask for."""
    size = 1000 + _next()
    _write(alloc=size, frames=_out(_frame(depth)), ending=_ending(), **more)
    return size


def leave(memory, *, depth=1, _frame=sys._getframe, _ending=sys.is_finalizing, _write=write, _out=outwards, **more):
    """Notes who calls to free, and returns what to free."""
    _write(free=memory.size, frames=_out(_frame(depth)), ending=_ending(), **more)
    return memory.pointer


def must(code, what):
    """The driver must have said yes."""
    if code != 0:
        raise RuntimeError("%s: %d" % (what, code))


class Memory:
    """An allocation."""

    def __init__(self, size, pointer):
        self.size = size
        self.pointer = pointer


class Driver:
    """The driver's functions, called with the GIL released (`ctypes.CDLL`) or held (`ctypes.PyDLL`)."""

    def __init__(self, loader):
        library = loader("libcuda.so.1")
        self.alloc = library.cuMemAlloc_v2
        self.alloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.free = library.cuMemFree_v2
        self.free.argtypes = [ctypes.c_uint64]
        self.library = library
        must(library.cuInit(0), "cuInit")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        must(library.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
        must(library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
        self.context = context
        self.enter()

    def enter(self):
        """Makes the context that of this thread."""
        must(self.library.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")


if ctypes is not None:
    released = Driver(ctypes.CDLL)
    held = Driver(ctypes.PyDLL)
    drivers = (released, held)
    _use = [released]


def use(driver):
    """The driver that `allocate` and `free` call from now on."""
    _use[0] = driver


def allocate(**more):
    """Allocates; the caller is the second frame."""
    driver, pointer = _use[0], ctypes.c_uint64()
    code, size = -1, [0]
    code = driver.alloc(ctypes.addressof(pointer), size.__setitem__(0, note(**more)) or size[0])
    must(code, "cuMemAlloc")
    write(alloc=size[0], address=pointer.value)
    return Memory(size[0], pointer.value)


def free(memory, **more):
    """Frees; the caller is the second frame."""
    code = _use[0].free(leave(memory, **more))
    must(code, "cuMemFree")


def touch(**more):
    """Allocates and frees: for the programs that only want to be seen doing it."""
    free(allocate(**more), **more)
