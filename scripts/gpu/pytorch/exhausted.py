"""The end of the card's memory, met by a tensor and by a library.

    exhausted.py tensor    more and more tensors until one is refused; freed, everything works again
    exhausted.py cublas    a full card before the first matrix product: cuBLAS finds no memory for itself
"""
import tell
import torch


def kind(e):
    """What kind of error it is, in words that hold no numbers."""
    text = str(e)
    words = ["out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED", "ncclUnhandledCudaError"]
    words += ["ncclSystemError", "ncclInternalError", "DistBackendError"]
    return f"{type(e).__name__}, {' and '.join(w for w in words if w.lower() in text.lower()) or 'other words'}"


def fill(device, left=4 << 20):
    """Nearly everything, and without being refused: out of memory is to be met first by what comes after."""
    kept, page = [], 2 << 20
    while True:
        free = torch.cuda.mem_get_info(device)[0]
        if free < left:
            return kept
        # PyTorch takes large pieces as they are, whole pages, and 2 MiB for the small ones of up to 1 MiB.
        piece = min(free - page, 8 << 30) // page * page if free >= 14 << 20 else 1 << 20
        try:
            kept.append(torch.empty(piece, dtype=torch.uint8, device=device))
        except torch.cuda.OutOfMemoryError:
            return kept


def tensor(device):
    torch.ones(1, device=device)
    rows = []
    try:
        while True:
            rows.append(torch.empty(4 << 30, dtype=torch.uint8, device=device))
    except torch.cuda.OutOfMemoryError as e:
        tell.say("tensor", kind(e))
    tell.lines.append(f"# {len(rows)} tensors of 4 GiB")
    rows.clear()
    a = torch.ones(2048, 2048, device=device)
    tell.say("product after that", float((a @ a)[0, 0]))
    stats = torch.cuda.memory_stats(device)
    tell.say("num_ooms", stats["num_ooms"])


def cublas(device):
    a, b, c = (torch.ones(2048, 2048, device=device) for _ in range(3))
    kept = fill(device)
    tell.lines.append(f"# {len(kept)} pieces")
    try:
        torch.mm(a, b, out=c)
        torch.cuda.synchronize()
        tell.say("product on a full card", float(c[0, 0]))
    except Exception as e:
        tell.say("product on a full card", kind(e))
    kept.clear()
    torch.cuda.empty_cache()
    try:
        torch.mm(a, b, out=c)
        tell.say("product after that", float(c[0, 0]))
    except Exception as e:
        tell.say("product after that", kind(e))


if __name__ == "__main__":
    import os

    args = tell.begin("tensor", "cublas")
    if args.device.type != "cuda":
        tell.skip("needs a GPU")
    {"tensor": tensor, "cublas": cublas}[args.what](args.device)
    os.write(1, ("\n".join(tell.lines) + "\n").encode())
