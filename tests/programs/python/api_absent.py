"""Every call of the package is a no-op where nothing is preloaded, or vramscope is switched off, or ctypes is missing."""

import sys

if sys.argv[1:] == ["no-ctypes"]:
    sys.modules["ctypes"] = None

import vramscope  # noqa: E402

assert vramscope.active() is False
assert vramscope.stats() == {} and set(vramscope.stats(0).values()) == {0}
assert vramscope.empty_cache() == 0
vramscope.reset_peak()
vramscope.reset_peak(0)
for limit in (1 << 30, 0.5, None):
    vramscope.set_limit(limit)
for wrong in (-1, 1.5, -0.5, 0, True, "24GiB"):
    try:
        vramscope.set_limit(wrong)
        raise AssertionError(wrong)
    except ValueError:
        pass
vramscope.snapshot("nothing")
vramscope.mark("nothing")
with vramscope.region("nothing") as r:
    assert r is not None


@vramscope.region("nothing")
def called(x):
    return x


assert called(3) == 3
vramscope.pause()
vramscope.resume()
vramscope.on_oom(lambda: None)()
assert sorted(vramscope.__all__) == sorted(n for n in dir(vramscope) if not n.startswith("_"))
print("harmless")
