"""What a call stack costs at each allocation of a transformer that trains on the CPU; whether it is the right one.

train.py             a table: each method in turn, in rounds
train.py --check     ours against libgcc's at each allocation of many operations
train.py --signal    the same in a signal handler, at arbitrary instructions
"""

import argparse
import os
import threading
import time

# torch's own look-up of names needs addr2line and minutes otherwise.
os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")

import torch
import torch.utils.checkpoint

import library as preloaded
import ops
import torch_gather


class Training:
    """Some hundred allocations a step, 50 to 100 ms."""

    def __init__(self):
        layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.batch = torch.randn(8, 64, 128)

    def step(self):
        self.optimizer.zero_grad()
        loss = (self.model(self.batch) - self.batch).pow(2).mean()
        loss.backward()
        self.optimizer.step()


def at(sorted_values, part):
    return sorted_values[min(int(len(sorted_values) * part), len(sorted_values) - 1)]


def row(name, frames, rounds):
    """Rounds are sorted lists of nanoseconds; the table names the best and the median one."""
    rounds = sorted(rounds, key=lambda values: at(values, 0.5))
    best, median = rounds[0], rounds[len(rounds) // 2]
    print(f"| {name} | {frames} | {at(best, 0.5):.0f} | {at(median, 0.5):.0f} | {at(median, 0.9):.0f} |")


def bench(library, rounds, steps):
    training = Training()
    for _ in range(5):
        training.step()
    start = time.perf_counter()
    for _ in range(5):
        training.step()
    duration = (time.perf_counter() - start) / 5

    names = preloaded.methods(library)
    costs = {name: [] for name in names}
    frames, captures = {}, 0
    for turn in range(-1, rounds):
        for number, name in enumerate(names):
            if not library.arm(number):
                continue
            for _ in range(steps):
                training.step()
            library.disarm()
            results = library.results()
            # The first round is for the caches that a method has.
            if turn >= 0 and results.captures:
                costs[name].append(preloaded.nanoseconds(library))
                frames[name] = results.frames / results.captures
                captures = results.captures / steps
    gathers = torch_gather.measure(training, rounds)

    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {threads} threads: {1000 * duration:.0f} ms and {captures:.0f} captures a step;")
    print(f"{library.results().distinct} stacks told apart; {rounds} rounds of {steps} steps with each method in turn;")
    print("nanoseconds a stack")
    print("| method | frames a stack | p50, best round | p50, median round | p90, median round |")
    print("|---|---|---|---|---|")
    for name in names:
        if costs[name]:
            row(name, f"{frames[name]:.1f}", costs[name])
        else:
            print(f"| {name} | not here | | | |")
    for name, depth, values in gathers:
        row(name, depth, values)


def run(operations):
    """In the main thread and in another one at once."""

    def work():
        for operation in operations:
            operation()

    other = threading.Thread(target=work)
    other.start()
    work()
    other.join()


def verdict(library, enough):
    """Prints what was compared; whether all is well."""
    counts = library.compared()
    print(f"{counts.stacks} stacks, {counts.frames} frames equal; {counts.different} stacks differ "
          f"({counts.guessed} with guesses, {counts.cut} longer than the room, {counts.disagreed} hashed otherwise)")
    for number in range(8):
        if (stacks := preloaded.difference(library, number)) is None:
            break
        print(f"difference {number}:")
        for i in range(max(map(len, stacks))):
            ours, theirs = (stack[i] if i < len(stack) else "-" for stack in stacks)
            print(f"  {' ' if ours.rstrip('!?') == theirs else '*'} {i:3} {ours:48} {theirs}")
    if counts.stacks < enough:
        print(f"too few: {enough} are wanted")
    return counts.different == 0 and counts.stacks >= enough


def check(library, enough):
    library.arm_comparison()
    while library.compared().stacks < enough:
        run(ops.ALL)
    library.disarm()
    return verdict(library, enough)


def signal(library, enough, rate):
    run(ops.BEAR_SIGNALS)
    if not library.handle_signals():
        raise SystemExit("no handler for SIGPROF")
    # The last method, which does most, works in the hook as well, so that signals fall into captures, too.
    library.arm(len(preloaded.methods(library)) - 1)
    turn = 0
    while library.compared().stacks < enough:
        turn += 1
        library.alternate(turn % 2 == 0)
        # All threads that are there now: the main thread and torch's.
        for thread in os.listdir("/proc/self/task"):
            library.interrupt(int(thread), rate)
        run(ops.BEAR_SIGNALS)
        library.interrupt_nobody()
    library.disarm()
    seen = library.signals()
    print(f"{seen.signals} signals ({rate} a second for each thread), {seen.alternate} of them on an alternate stack; "
          f"{seen.busy} in our own code; left out: {seen.realigned} where libgcc is known to be wrong")
    return verdict(library, enough)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--signal", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3, help="of a round (3)")
    parser.add_argument("--stacks", type=int, default=10000, help="to compare (10000)")
    parser.add_argument("--rate", type=int, default=500, help="signals a second (500)")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    library = preloaded.load()
    if arguments.check:
        raise SystemExit(not check(library, arguments.stacks))
    if arguments.signal:
        raise SystemExit(not signal(library, arguments.stacks, arguments.rate))
    bench(library, arguments.rounds, arguments.steps)


if __name__ == "__main__":
    main()
