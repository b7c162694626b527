"""20,000 functions that live for one call. Their code objects get the same addresses over and over, have the same shape and the
same lines, but other names or files: a name kept for an address would be wrong.

What is expected is known without asking: no frame object is made.
"""

import gc

import gpu

driver, place = gpu.released, gpu.ctypes.c_uint64()
at = gpu.ctypes.addressof(place)
seen, again = set(), 0


def run(i):
    global again
    # In turn another name, another file, and both.
    name = "f%05d" % (i if i % 3 != 1 else i - 1)
    file = "<x%05d>" % (i if i % 3 != 2 else i - 1)
    space = {"alloc": driver.alloc, "free": driver.free, "at": at, "place": place, "size": 100000 + i}
    code = compile("def %s():\n  alloc(at, size); free(place)\n%s()\n" % (name, name), file, "exec")
    address = id(code)
    again += address in seen
    seen.add(address)
    gpu.write(alloc=100000 + i, frames=[[name, file, 2], ["<module>", file, 3]], innermost=2)
    exec(code, space)


for i in range(20000):
    run(i)
    if i % 500 == 0:
        gc.collect()
gpu.write(again=again)
print(place.value != 0)
