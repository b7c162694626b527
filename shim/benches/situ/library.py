"""The preloaded library, as Python sees it: the C functions of src/control.rs."""

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64


def _counts(*names):
    return type("Counts", (ctypes.Structure,), {"_fields_": [(name, c_uint64) for name in names]})


Results = _counts("captures", "frames", "distinct")
Compared = _counts("stacks", "frames", "guessed", "cut", "disagreed", "different")
Signals = _counts("signals", "alternate", "busy", "realigned")

_FUNCTIONS = {
    "start": (None, []),
    "name": (c_char_p, [c_uint32]),
    "arm": (c_bool, [c_uint32]),
    "arm_comparison": (None, []),
    "disarm": (None, []),
    "results": (Results, []),
    "nanoseconds": (c_size_t, [POINTER(c_double), c_size_t]),
    "compared": (Compared, []),
    "difference": (c_size_t, [c_size_t, c_size_t, POINTER(c_uint64), c_size_t]),
    "handle_signals": (c_bool, []),
    "interrupt": (c_bool, [c_int, c_int]),
    "interrupt_nobody": (None, []),
    "alternate": (c_bool, [c_bool]),
    "signals": (Signals, []),
}


def load():
    """The functions without their prefix, ready for use."""
    program = ctypes.CDLL(None)
    if not hasattr(program, "situ_start"):
        raise SystemExit("libsitu.so must be preloaded: see run.sh")
    functions = {}
    for name, (result, arguments) in _FUNCTIONS.items():
        function = program["situ_" + name]
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    library = type("Library", (), {name: staticmethod(f) for name, f in functions.items()})
    library.start()
    return library


def methods(library):
    """The names, in the order of their numbers."""
    names = []
    while name := library.name(len(names)):
        names.append(name.decode())
    return names


def nanoseconds(library):
    """What each capture of the last round cost, the cheapest first."""
    room = (c_double * library.results().captures)()
    return sorted(room[: library.nanoseconds(room, len(room))])


def difference(library, number):
    """A stack that differs, as ours and as libgcc's, by module and offset; None if there is no such one."""
    stacks = []
    for whose in (0, 1):
        room = (c_uint64 * 256)()
        stacks.append(room[: library.difference(number, whose, room, len(room))])
    return [[_place(pc) for pc in pcs] for pcs in stacks] if any(stacks) else None


def _place(recorded):
    """libtorch_cpu.so+0x1234, with the marks that the walk puts on top: ? guessed, ! interrupted there."""
    pc = recorded & ((1 << 62) - 1)
    marks = "?" * (recorded >> 63) + "!" * (recorded >> 62 & 1)
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split()
            low, high = (int(end, 16) for end in fields[0].split("-"))
            if low <= pc < high and len(fields) > 5:
                # As far from the mapping's start in the file as in memory.
                return f"{fields[5].rsplit('/', 1)[-1]}+{pc - low + int(fields[2], 16):#x}{marks}"
    return f"{pc:#x}{marks}"
