"""Stands for torch._inductor.config: the module's class is exchanged at its end, and the nested settings go by a proxy."""

import sys
import types


class triton(object):
    cudagraph_trees = True


class _Proxy(object):
    def __init__(self, config):
        object.__setattr__(self, "_config", config)

    def __getattr__(self, name):
        return self._config["triton." + name]

    def __setattr__(self, name, value):
        if "triton." + name not in self._config:
            raise AttributeError(name)
        self._config["triton." + name] = value


class _Config(types.ModuleType):
    pass


_module = sys.modules[__name__]
_module.__class__ = _Config
_module.triton = _Proxy({"triton.cudagraph_trees": triton.cudagraph_trees})
