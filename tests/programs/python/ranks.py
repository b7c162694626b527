"""A distributed job by Python's own means: `ranks.py spawn|fork|forkserver|subprocess`. The launcher touches no GPU."""

import ctypes
import multiprocessing
import os
import subprocess
import sys

RANKS = 2


def helper(n):
    return n * n


def work(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    cuda = ctypes.CDLL("libcuda.so.1")
    context, p = ctypes.c_void_p(), ctypes.c_uint64()
    for code in (
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(30000 + rank)),
    ):
        assert code == 0, code
    # Helpers that touch no GPU, as the workers of a DataLoader.
    for how in ("fork", "spawn"):
        with multiprocessing.get_context(how).Pool(1) as pool:
            assert pool.map(helper, [3]) == [9]
    assert cuda.cuMemFree_v2(p) == 0


def main(how):
    if how == "subprocess":
        ranks = [subprocess.Popen([sys.executable, __file__, "rank", str(i)]) for i in range(RANKS)]
        return [rank.wait() for rank in ranks]
    start = multiprocessing.get_context(how)
    ranks = [start.Process(target=work, args=(i,)) for i in range(RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return [rank.exitcode for rank in ranks]


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        work(int(sys.argv[2]))
    else:
        codes = main(sys.argv[1])
        print("ranks ended with", codes)
        sys.exit(any(codes))
