"""Threads that call the driver at once, each with stacks of its own."""

import concurrent.futures
import threading

import gpu

START = threading.Barrier(6)


def work(number):
    gpu._use[0].enter()
    space = {"touch": gpu.touch}
    # Each thread runs functions of its own.
    source = "def f%d(n):\n%s return f%d(n - 1) if n else touch()\n" % (number, "\n" * number, number)
    exec(compile(source, "thread %d" % number, "exec"), space)
    START.wait()
    for i in range(60):
        space["f%d" % number](i % (number + 2))


class Own(threading.Thread):
    def run(self):
        work(5)


for driver in gpu.drivers:
    gpu.use(driver)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(5)] + [Own()]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def late():
    gpu._use[0].enter()
    gpu.touch()


timer = threading.Timer(0.001, late)
timer.start()
timer.join()
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for _ in range(4):
        pool.submit(late)
# Many short threads: numbers and memory of threads come back.
for _ in range(40):
    t = threading.Thread(target=late)
    t.start()
    t.join()
print(len(threads))
