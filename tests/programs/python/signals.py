"""A signal's handler in Python that calls the driver, between any two instructions of the program."""

import signal
import time

import gpu

count = 0


def handler(number, frame):
    global count
    count += 1
    gpu.touch()
    # Not at an interval: on a busy machine handlers would pile up.
    signal.setitimer(signal.ITIMER_REAL, 0.001)


def busy(n):
    return busy(n - 1) if n else sum(i * i for i in range(300))


signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001)
while count < 40:
    busy(count % 5)
    if count % 7 == 0:
        time.sleep(0.002)
    gpu.touch()
signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(count >= 40)
