"""Callbacks after an out-of-memory failure, in a thread of their own."""

import contextlib
import os
import threading
import traceback
import warnings

from ._library import library

_watching = threading.Lock()
_callbacks = []
_watcher = None


def on_oom(callback):
    """Calls ``callback()`` after an out-of-memory failure, in a thread of its own (never inside the allocator, where Python
    can't safely run). Returns a function that takes the callback away again; ``on_oom(None)`` takes all away."""
    if callback is None:
        with _watching:
            _callbacks.clear()
        return lambda: None
    if not callable(callback):
        raise TypeError(f"a callback is a function, or None: {callback!r}")
    if library.get() is None:
        return lambda: None
    with _watching:
        _callbacks.append(callback)
        _watch(None)

    def remove():
        with _watching, contextlib.suppress(ValueError):
            _callbacks.remove(callback)

    return remove


def _watch(seen):
    """Starts the thread, if there is none, to look for failures after so many; None: from now on."""
    global _watcher
    lib = library.get()
    if _watcher is not None or lib is None:
        return
    if seen is None:
        seen = lib.vramscope_wait_oom(2**64 - 1, 0)
    try:
        watcher = threading.Thread(target=_wait, args=(lib, seen), name="vramscope-oom", daemon=True)
        watcher.start()
        _watcher = watcher
    except RuntimeError as e:  # At the interpreter's end, in some of its sub-interpreters, at a limit of the system.
        warnings.warn(f"vramscope: on_oom calls nobody here, as no thread can be had ({e})", RuntimeWarning, stacklevel=3)


def _wait(lib, seen):
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
                except BaseException:  # The others are called all the same, and at the next failure this one too.
                    traceback.print_exc()


def _forked():
    """A child has the callbacks, and neither the thread nor whoever held the lock. (It is watched if CUDA was not used yet.)"""
    global _watching, _watcher
    _watching, _watcher = threading.Lock(), None
    if _callbacks:
        _watch(0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
