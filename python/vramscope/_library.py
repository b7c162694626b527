"""The preloaded library, if there is one: its functions, by ctypes."""

try:
    import ctypes
except ImportError:  # A Python that was built without it, or a sub-interpreter that may not have it: as without the preload.
    ctypes = None

# The numbers of vramscope_stats_t of vramscope.h, in their order.
NAMES = (
    "allocated",
    "allocated_peak",
    "reserved",
    "reserved_peak",
    "active",
    "inactive",
    "pool_active",
    "pool_inactive",
    "tensors",
    "hoarded",
    "pinned",
    "allocations",
    "failures",
    "limit",
)


def _types():
    """Each function's result and arguments."""
    number, text = ctypes.c_uint64, ctypes.c_char_p
    return {
        "vramscope_active": (ctypes.c_int, []),
        "vramscope_version": (ctypes.c_uint, []),
        "vramscope_stats": (ctypes.c_int, [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]),
        "vramscope_reset_peak": (None, [ctypes.c_int]),
        "vramscope_empty_cache": (number, []),
        "vramscope_set_limit": (ctypes.c_int, [ctypes.c_int, number, ctypes.c_double]),
        "vramscope_snapshot": (ctypes.c_int, [text]),
        "vramscope_mark": (None, [text]),
        "vramscope_region_begin": (number, [text]),
        "vramscope_region_end": (None, [number]),
        "vramscope_pause": (None, []),
        "vramscope_resume": (None, []),
        "vramscope_wait_oom": (number, [number, ctypes.c_int]),
    }


def _find():
    # What is preloaded is in the program's own scope. Nothing is ever loaded here: a library that came late would see
    # half of the allocations.
    if ctypes is None:
        return None
    try:
        library = ctypes.CDLL(None)
        for name, (result, arguments) in _types().items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        return library
    except (OSError, AttributeError):
        return None


class _Library:
    """Found once, at import. Whether anything is watched it says itself: not in the child of a process that uses CUDA."""

    def __init__(self):
        self._library = _find()

    def get(self):
        library = self._library
        return library if library is not None and library.vramscope_active() else None


library = _Library()
