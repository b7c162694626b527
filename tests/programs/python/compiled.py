"""What `--pool on` makes of PyTorch's compiler: prints how a stand-in of it would record CUDA graphs."""

import sys

import torch

print("torch._inductor.config" in sys.modules, torch._C._cuda_getAllocatorBackend())
case = sys.argv[1]
if case != "never":
    from torch._inductor import compile_fx

    if case == "own":
        compile_fx.config.triton.cudagraph_trees = True
    print(compile_fx.config.triton.cudagraph_trees)
    print(compile_fx.cudagraphify("f", [1, 2]))
    print(compile_fx.cudagraphify("g", [1]))
    print(len([f for f in sys.meta_path if type(f).__name__ == "_AfterImport"]))
