"""Forks: the children do nothing with the GPU."""

import os
import subprocess
import sys
import threading

import gpu


def child(how):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        sum(i for i in range(1000))
        if how == "at once":
            os._exit(3)
        sys.exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


gpu.touch()
print(child("at once"), flush=True)
gpu.touch()
print(child("in order"), flush=True)
thread = threading.Thread(target=lambda: print(child("at once"), flush=True))
thread.start()
thread.join()
print(subprocess.run([sys.executable, "-c", "print(7)"], stdout=subprocess.PIPE, check=True).stdout)
gpu.touch()
