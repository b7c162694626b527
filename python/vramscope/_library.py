"""The preloaded library, if there is one: its functions, by ctypes."""

import ctypes
import os


class Stats(ctypes.Structure):
    """vramscope_stats_t of vramscope.h."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
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
    ]


_TYPES = {
    "vramscope_active": (ctypes.c_int, []),
    "vramscope_version": (ctypes.c_uint, []),
    "vramscope_stats": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(Stats), ctypes.c_size_t]),
    "vramscope_reset_peak": (None, [ctypes.c_int]),
    "vramscope_empty_cache": (ctypes.c_uint64, []),
    "vramscope_set_limit": (ctypes.c_int, [ctypes.c_int, ctypes.c_uint64, ctypes.c_double]),
    "vramscope_snapshot": (ctypes.c_int, [ctypes.c_char_p]),
    "vramscope_mark": (None, [ctypes.c_char_p]),
    "vramscope_region_begin": (ctypes.c_uint64, [ctypes.c_char_p]),
    "vramscope_region_end": (None, [ctypes.c_uint64]),
    "vramscope_pause": (None, []),
    "vramscope_resume": (None, []),
    "vramscope_wait_oom": (ctypes.c_uint64, [ctypes.c_uint64, ctypes.c_int]),
}


def _find():
    # What is preloaded is in the program's own scope. Nothing is ever loaded here: a library that came late would see
    # half of the allocations.
    try:
        library = ctypes.CDLL(None)
        for name, (result, arguments) in _TYPES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        return library
    except (OSError, AttributeError):
        return None


class _Library:
    """Found at import, and again in a forked child, where nothing is watched."""

    def __init__(self):
        self._library = _find()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self):
        self._library = None

    def get(self):
        library = self._library
        return library if library is not None and library.vramscope_active() else None


library = _Library()
