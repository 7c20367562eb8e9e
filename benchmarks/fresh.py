"""One training in a process of its own: prints its time, also of an iteration, and how far the memory rose.

python benchmarks/fresh.py PART D ALPHA [MAX_ITER]

Drawing the data counts, and two fresh samples for the test error, but not for the time of an iteration, which is the
difference to a training of one iteration only; memory is that of the latter. Needs Linux, which tells the highest
memory of a process.
"""

import json
import sys
import time
from pathlib import Path

import psutil

from attn_lib.problems import MarchenkoPastur, PositionalSemantic, SingleHead
from attn_lib.simulation.erm import train_positional_semantic, train_single_head


def highest_memory():
    """In bytes; not ru_maxrss, which begins with the memory of the process that started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def trained(part, d, alpha, **options):
    if part == 1:
        problem = PositionalSemantic(alpha=alpha, omega=0.3)
        return train_positional_semantic(problem, d=d, seeds=[0], scales=(1.0,), n_test=2, device="cpu", **options)
    problem = SingleHead(alpha=alpha, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    return train_single_head(problem, d=d, seeds=[0], n_test=2, device="cpu", **options)


def timed(part, d, alpha, *, rounds, max_iter):
    """Least processor seconds of a training in some rounds, and its iterations."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        found = trained(part, d, alpha, max_iter=max_iter)
        seconds.append(time.process_time() - start)
    return min(seconds), int(found.n_iter[0])


if __name__ == "__main__":
    part, d, alpha, *max_iter = map(float, sys.argv[1:])
    part, d, most = int(part), int(d), int(*max_iter or [5000])
    trained(part, 10, 1.0)  # the first call loads libraries
    before = psutil.Process().memory_info().rss
    first, _ = timed(part, d, alpha, rounds=1, max_iter=1)  # memory is dearer when it is touched for the first time
    memory = highest_memory() - before
    rounds = 5 if first < 0.5 else 2
    seconds, iterations = timed(part, d, alpha, rounds=rounds if part == 1 else 1, max_iter=most)
    least, _ = timed(part, d, alpha, rounds=rounds, max_iter=1)
    result = {
        "seconds": seconds,
        "iterations": iterations,
        "iteration": (seconds - least) / (iterations - 1),
        "memory": memory,
    }
    print(json.dumps(result))
