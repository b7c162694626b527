"""Regions: named stretches of a thread's work."""

import contextlib
import functools
import inspect
import threading
import types

from ._library import library


class region(contextlib.ContextDecorator):
    """What this thread allocates meanwhile is of this region: ``with region("forward"):``, or as a decorator.

    A generator or a coroutine that is decorated is in the region while it runs, not while it waits.
    """

    def __init__(self, name):
        self._name = str(name).encode("utf-8", "replace")
        self._open = threading.local()

    def _recreate_cm(self):
        return self

    def __call__(self, function):
        # Calling one of these runs nothing of it.
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def inner(*args, **kwargs):
                return (yield from _steps(self, function(*args, **kwargs)))

        elif inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def inner(*args, **kwargs):
                return await _steps(self, function(*args, **kwargs))

        elif inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def inner(*args, **kwargs):
                source = function(*args, **kwargs)
                resume, sent = source.asend, [None]
                while True:
                    try:
                        made = await _steps(self, resume(sent.pop()))
                    except StopAsyncIteration:
                        return
                    try:
                        resume, sent = source.asend, [(yield made)]
                    except GeneratorExit:
                        await _steps(self, source.aclose())
                        raise
                    except BaseException as e:
                        resume, sent = source.athrow, [e]

        else:
            return super().__call__(function)
        return inner

    def __enter__(self):
        lib = library.get()
        number = lib.vramscope_region_begin(self._name) if lib is not None else 0
        if not hasattr(self._open, "numbers"):
            self._open.numbers = []
        self._open.numbers.append(number)
        return self

    def __exit__(self, *_):
        # A generator may be closed by another thread than ran it: there this region is not open.
        numbers = getattr(self._open, "numbers", None)
        number = numbers.pop() if numbers else 0
        lib = library.get()
        if lib is not None and number:
            lib.vramscope_region_end(number)
        return False


@types.coroutine
def _steps(around, inside):
    """Runs a generator, or what can be awaited, in a region each time that it goes on."""
    # (Popped: an exception that a frame of its own traceback holds would keep the tensors of all frames for longer.)
    resume, sent = inside.send, [None]
    while True:
        with around:
            try:
                made = resume(sent.pop())
            except StopIteration as e:
                return e.value
        try:
            resume, sent = inside.send, [(yield made)]
        except GeneratorExit:
            with around:
                inside.close()
            raise
        except BaseException as e:
            resume, sent = inside.throw, [e]
