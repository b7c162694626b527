"""`vramscope run --pool on` puts the folder of this file first on PYTHONPATH: Python imports it at its start.

It runs the sitecustomize that would have been imported without it, and takes itself off sys.path. CuPy has no variable that
selects the driver's asynchronous allocator (the one that vramscope serves), so it waits for `import cupy`, and then sets an
allocator that asks for cupy.cuda.malloc_async: until the program sets one of its own. PyTorch's compiler records CUDA graphs in
trees that share memory (`mode="reduce-overhead"`), for which the backend cudaMallocAsync lacks a function; when its settings are
imported, the trees are turned off, and each graph has memory of its own. Nothing is imported here that the program did not ask for, and whatever goes wrong leaves the program as it would be without. Any Python since 2.7 can read it.
"""

import os
import sys


def _without_us():
    """Takes our folder off sys.path (once: a program may name it itself), and runs the real sitecustomize."""
    here = os.path.dirname(os.path.abspath(__file__))
    for i, path in enumerate(sys.path):
        if path and os.path.abspath(path) == here:
            del sys.path[i]
            break
    ours = sys.modules.pop(__name__, None)
    try:
        __import__(__name__)
    except ImportError as e:
        # There is none: then it is known that we are it. One that fails to import another module is its own matter.
        if getattr(e, "name", __name__) != __name__:
            raise
        if ours is not None:
            sys.modules[__name__] = ours


def _allocator(cupy):
    """What CuPy calls for memory: the asynchronous allocator where the device has it, else what CuPy has by itself."""
    usual = cupy.cuda.get_allocator()
    error, out_of_memory = cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.memory.OutOfMemoryError
    chosen = []

    def asked(size):
        try:
            return cupy.cuda.malloc_async(size)
        except error as e:
            # cudaErrorMemoryAllocation, told as CuPy's own pools tell it.
            if e.status != 2:
                raise
        raise out_of_memory(size, -1)

    def first(size):
        # At the first request, not at the import: this calls CUDA, and the program may fork before it does.
        import ctypes

        try:
            if not ctypes.CDLL(None).vramscope_active():
                raise RuntimeError("switched off")
            memory = asked(size)
            chosen.append(asked)
            return memory
        except out_of_memory:
            raise
        except Exception:  # No preload, or switched off; no such allocator.
            chosen.append(usual)
            return usual(size)

    def vramscope_allocator(size):
        return (chosen[0] if chosen else first)(size)

    return vramscope_allocator


def _cupy(cupy):
    cupy.cuda.set_allocator(_allocator(cupy))


def _has_our_backend():
    """Whether PyTorch has the backend that it was asked for: a program may have set another allocator since."""
    return sys.modules["torch"]._C._cuda_getAllocatorBackend() == "cudaMallocAsync"


def _inductor(config):
    # What the program sets comes after this import, and stays.
    if _has_our_backend():
        config.triton.cudagraph_trees = False


def _trees(module):
    """Says why, where the program turned the trees on again: what fails is deep inside."""
    usual = module.cudagraphify_impl

    def cudagraphify_impl(*args, **kwargs):
        module.cudagraphify_impl = usual
        try:
            if _has_our_backend():
                sys.stderr.write(
                    "vramscope: pool on: torch._inductor.config.triton.cudagraph_trees stays True as you set it, and PyTorch's "
                    "CUDA graph trees do not work with backend:cudaMallocAsync; without it each graph has memory of its own\n"
                )
        except Exception:
            pass
        return usual(*args, **kwargs)

    module.cudagraphify_impl = cudagraphify_impl


class _AfterImport(object):
    """Of sys.meta_path: lets the others find a module, and does its work when that has been run."""

    def __init__(self, name, work):
        self.name, self.work = name, work

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        for finder in list(sys.meta_path):
            find = None if isinstance(finder, _AfterImport) else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                try:
                    self._attach(spec.loader)
                except Exception:
                    pass
                return spec
        return None

    def _attach(self, loader):
        run = loader.exec_module

        def exec_module(module):
            try:
                del loader.exec_module
            except AttributeError:
                pass
            run(module)
            try:
                sys.meta_path.remove(self)
                self.work(module)
            except Exception:
                pass

        loader.exec_module = exec_module


try:
    if os.environ.get("VRAMSCOPE_POOL", "").strip() in ("on", "1") and sys.version_info >= (3, 4):
        for _name, _work in (
            ("cupy", _cupy),
            ("torch._inductor.config", _inductor),
            ("torch._inductor.cudagraph_trees", _trees),
        ):
            sys.meta_path.insert(0, _AfterImport(_name, _work))
except Exception:
    pass
_without_us()
