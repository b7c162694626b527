"""Starts a Jupyter kernel under `vramscope run`, runs a cell, interrupts and restarts it, and shows what it leaves.

    pip install ipykernel jupyter_client
    python scripts/jupyter/check.py PATH/TO/vramscope [FILE-WITH-A-CELL]

The cell should ask for GPU memory (by default with PyTorch).
"""

import json
import os
import pathlib
import sys
import tempfile
import threading

from jupyter_client import KernelManager

CELL = "import torch; kept = torch.zeros(1 << 20, device='cuda')"
PATIENT = """
import time
try:
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted")
time.sleep(0.5)
print("once")
"""


def run(client, code):
    """Runs a cell, and returns what it printed."""
    said = []
    reply = client.execute_interactive(code, timeout=120, output_hook=lambda m: said.append(m["content"].get("text", "")))
    text = "".join(said)
    if reply["content"]["status"] != "ok":
        raise RuntimeError("a cell failed: %s" % reply["content"])
    return text


def main():
    vramscope, *more = sys.argv[1:]
    cell = pathlib.Path(more[0]).read_text() if more else CELL
    vramscope = os.path.abspath(vramscope)
    os.chdir(tempfile.mkdtemp(prefix="vramscope-jupyter."))
    kernel = pathlib.Path("data/kernels/vramscope")
    kernel.mkdir(parents=True)
    words = [vramscope, "run", "--", sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"display_name": "Python (vramscope)", "language": "python", "interrupt_mode": "message", "argv": words}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    os.environ["JUPYTER_PATH"] = os.path.abspath("data")
    manager = KernelManager(kernel_name="vramscope")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    for _ in range(2):
        client.wait_for_ready(timeout=120)
        run(client, cell)
        threading.Timer(1, manager.interrupt_kernel).start()
        assert run(client, PATIENT) == "interrupted\nonce\n"
        manager.restart_kernel()
    client.stop_channels()
    manager.shutdown_kernel()
    histories = sorted(pathlib.Path(".").glob("vramscope-*.jsonl"))
    print(len(histories), "histories in", os.getcwd())
    assert len(histories) == 2, histories


main()
