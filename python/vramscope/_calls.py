"""The calls of the package."""

import contextlib
import operator
import os

from ._library import NAMES, ctypes, library


def active():
    """Whether vramscope watches this process."""
    return library.get() is not None


def _number(device):
    """A device's number, if it can be one."""
    try:
        number = operator.index(device)
    except TypeError:
        number = -1
    if isinstance(device, bool) or not 0 <= number < 2**31:
        raise ValueError(f"a device is a number from 0 on: {device!r}")
    return number


def _stats(lib, device):
    """A device's, or None for one that is not in use."""
    numbers = (ctypes.c_uint64 * len(NAMES))()
    result = lib.vramscope_stats(device, numbers, ctypes.sizeof(numbers))
    if result == -2:
        raise ValueError(f"there is no device {device}")
    return dict(zip(NAMES, numbers)) if result == 0 else None


def _devices(lib):
    found = {}
    for device in range(64):
        with contextlib.suppress(ValueError):
            s = _stats(lib, device)
            if s is not None:
                found[device] = s
    return found


def _nothing():
    return dict.fromkeys(NAMES, 0)


def stats(device=None):
    """What is in use, in bytes: ``allocated``, ``reserved``, ``active``, ``inactive``, their peaks, and what they consist of.

    Of one device (zeros for one that is not in use yet, and without vramscope; ValueError for one that is not there), or a
    dict of all devices that this process uses, by number (empty without vramscope).
    """
    lib = library.get()
    if lib is None:
        return {} if device is None else _nothing()
    if device is None:
        return _devices(lib)
    s = _stats(lib, _number(device))
    return _nothing() if s is None else s


def _each(device):
    lib = library.get()
    if lib is None:
        return None, []
    if device is None:
        return lib, list(_devices(lib))
    _stats(lib, _number(device))
    return lib, [_number(device)]


def reset_peak(device=None):
    """Starts the peaks anew, of one device or all."""
    lib, devices = _each(device)
    for d in devices:
        lib.vramscope_reset_peak(d)


def empty_cache():
    """Gives the pool's cached memory back to the device. Returns the bytes. (PyTorch's cache is PyTorch's own.)"""
    lib = library.get()
    return int(lib.vramscope_empty_cache()) if lib is not None else 0


def set_limit(limit, device=0):
    """No more of a device for this process: an int is bytes, a float a share of the device (1.0 is all of it), and None
    takes the limit away. ValueError for anything else, and for a device that is not there."""
    share = isinstance(limit, float)
    if limit is not None:
        try:
            fits = 0 < limit <= 1 if share else 0 < operator.index(limit) < 2**64 and not isinstance(limit, bool)
        except TypeError:
            fits = False
        if not fits:
            raise ValueError(f"a limit is bytes (int), a share up to 1.0 (float), or None for no limit: {limit!r}")
    lib = library.get()
    if lib is None:
        return
    amount = 0 if limit is None or share else operator.index(limit)
    if lib.vramscope_set_limit(_number(device), amount, float(limit) if share else 0.0) != 0:
        raise ValueError(f"vramscope can't limit device {device!r} to {limit!r}: is there such a device?")


def snapshot(path):
    """Writes everything that is live now, with call stacks, as a history to this file: ``vramscope report`` reads it."""
    lib = library.get()
    if lib is None:
        return
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError(f"a path has no NUL in it: {path!r}")
    if lib.vramscope_snapshot(encoded) != 0:
        raise OSError(f"vramscope could not write a snapshot to {os.fspath(path)!r}: the reason is on stderr")


def mark(text):
    """Marks this moment in the history: ``mark("epoch 3")``."""
    lib = library.get()
    if lib is not None:
        lib.vramscope_mark(str(text).encode("utf-8", "replace"))


def pause():
    """No call stacks, tensors, marks and regions are recorded until ``resume()``; the history says so, and passes no assertion."""
    lib = library.get()
    if lib is not None:
        lib.vramscope_pause()


def resume():
    """Ends a ``pause()``."""
    lib = library.get()
    if lib is not None:
        lib.vramscope_resume()
