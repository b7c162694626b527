"""Talk to vramscope from the program that it watches.

    vramscope run -- python train.py

Without the preload every call here is a harmless no-op, and ``active()`` is False: the calls can stay in the code.
Names are PyTorch's where they mean the same. Nothing here imports PyTorch.
"""

from ._calls import active, empty_cache, mark, pause, reset_peak, resume, set_limit, snapshot, stats
from ._oom import on_oom
from ._regions import region

__all__ = [
    "active",
    "empty_cache",
    "mark",
    "on_oom",
    "pause",
    "region",
    "reset_peak",
    "resume",
    "set_limit",
    "snapshot",
    "stats",
]
__version__ = "0.1.0"
