"""Python called by C called by Python: native and Python frames alternate.

`runs`: how many Python frames stand in a row, innermost first, where one run of the interpreter holds several (3.11 and newer;
before, each Python frame has a run of its own).
"""

import ctypes
import functools

import gpu

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
START = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
libc = ctypes.CDLL(None)
qsort = libc.qsort
qsort_held = ctypes.PyDLL(None).qsort


def get(*runs):
    driver, place = gpu._use[0], ctypes.c_uint64()
    gpu.must(driver.alloc(ctypes.addressof(place), gpu.note(runs=runs)), "alloc")
    gpu.must(driver.free(place.value), "free")


def plain():
    get(3)


def by_map():
    return list(map(lambda x: get(2, 2) or x, [1]))


def by_reduce():
    def add(a, b):
        get(2, 2)
        return a + b

    return functools.reduce(add, [1, 2])


def by_sorted():
    def key(x):
        def inner():
            list(map(lambda _: get(2, 2, 2), [0]))

        inner()
        return x

    return sorted([1], key=key)


def by_callback():
    def called(n):
        get(2, 2)
        return n + 1

    return CALLBACK(called)(4)


def by_callback_in_callback():
    def deepest(n):
        get(2, 1, 2)
        return n

    def called(n):
        return CALLBACK(deepest)(n) + 1

    return CALLBACK(called)(4)


def by_qsort(function):
    seen = []

    def compare(a, b):
        if not seen:
            seen.append(1)
            get(2, 2)
        return a[0] - b[0]

    values = (ctypes.c_int * 2)(2, 1)
    function(values, 2, ctypes.sizeof(ctypes.c_int), COMPARE(compare))
    return list(values)


def by_foreign_thread():
    """A thread that C made enters Python: it has a state of the interpreter for this one call."""

    def called(_):
        gpu._use[0].enter()
        get(2)
        list(map(lambda _: get(2, 1), [1]))
        return None

    start, thread = START(called), ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(thread), None, start, None)
    return libc.pthread_join(thread, None)


def by_max_in_exec():
    space = {"get": get}
    exec("max([1], key=lambda x: get(2, 1, 2) or x)", space)


for driver in gpu.drivers:
    gpu.use(driver)
    for case in (plain, by_map, by_reduce, by_sorted, by_callback, by_callback_in_callback, by_max_in_exec):
        print(case.__name__, case())
    print(by_qsort(qsort), by_qsort(qsort_held), by_foreign_thread())
