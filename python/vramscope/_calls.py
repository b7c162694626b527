"""The calls of the package."""

import contextlib
import ctypes
import operator
import os
import threading
import traceback

from ._library import Stats, library


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
    s = Stats()
    result = lib.vramscope_stats(device, ctypes.byref(s), ctypes.sizeof(s))
    if result == -2:
        raise ValueError(f"there is no device {device}")
    return s if result == 0 else None


def _devices(lib):
    found = {}
    for device in range(64):
        with contextlib.suppress(ValueError):
            s = _stats(lib, device)
            if s is not None:
                found[device] = s
    return found


def _named(s):
    return {name: getattr(s, name) for name, _ in Stats._fields_}


def _nothing():
    return {name: 0 for name, _ in Stats._fields_}


def stats(device=None):
    """What is in use, in bytes: ``allocated``, ``reserved``, ``active``, ``inactive``, their peaks, and what they consist of.

    Of one device (zeros for one that is not in use yet, and without vramscope; ValueError for one that is not there), or a
    dict of all devices that this process uses, by number (empty without vramscope).
    """
    lib = library.get()
    if lib is None:
        return {} if device is None else _nothing()
    if device is None:
        return {d: _named(s) for d, s in _devices(lib).items()}
    s = _stats(lib, _number(device))
    return _nothing() if s is None else _named(s)


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
    if lib is not None and lib.vramscope_snapshot(os.fsencode(path)) != 0:
        raise OSError(f"vramscope could not write a snapshot to {os.fspath(path)!r}: the reason is on stderr")


def mark(text):
    """Marks this moment in the history: ``mark("epoch 3")``."""
    lib = library.get()
    if lib is not None:
        lib.vramscope_mark(str(text).encode("utf-8", "replace"))


class region(contextlib.ContextDecorator):
    """What this thread allocates meanwhile is of this region: ``with region("forward"):``, or as a decorator."""

    def __init__(self, name):
        self._name = str(name).encode("utf-8", "replace")
        self._open = threading.local()

    def _recreate_cm(self):
        return self

    def __enter__(self):
        lib = library.get()
        number = lib.vramscope_region_begin(self._name) if lib is not None else 0
        if not hasattr(self._open, "numbers"):
            self._open.numbers = []
        self._open.numbers.append(number)
        return self

    def __exit__(self, *_):
        number = self._open.numbers.pop()
        lib = library.get()
        if lib is not None and number:
            lib.vramscope_region_end(number)
        return False


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


_watching = threading.Lock()
_callbacks = []
_watcher = None


def on_oom(callback):
    """Calls ``callback()`` after an out-of-memory failure, in a thread of its own (never inside the allocator, where Python
    can't safely run). Returns a function that takes the callback away again; ``on_oom(None)`` takes all away."""
    global _watcher
    if callback is None:
        with _watching:
            _callbacks.clear()
        return lambda: None
    if not callable(callback):
        raise TypeError(f"a callback is a function, or None: {callback!r}")
    lib = library.get()
    if lib is None:
        return lambda: None
    with _watching:
        _callbacks.append(callback)
        if _watcher is None:
            seen = lib.vramscope_wait_oom(2**64 - 1, 0)
            _watcher = threading.Thread(target=_watch, args=(lib, seen), name="vramscope-oom", daemon=True)
            _watcher.start()

    def remove():
        with _watching, contextlib.suppress(ValueError):
            _callbacks.remove(callback)

    return remove


def _watch(lib, seen):
    global _watcher
    while True:
        now = lib.vramscope_wait_oom(seen, 1000)
        with _watching:
            callbacks = list(_callbacks)
            if not callbacks:
                _watcher = None
                return
        if now > seen:
            seen = now
            for callback in callbacks:
                try:
                    callback()
                except Exception:  # The others are called all the same.
                    traceback.print_exc()
