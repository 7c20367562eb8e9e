"""One training in a process of its own: prints its time, also of an iteration, and how far the memory rose.

python benchmarks/fresh.py PART D ALPHA [MAX_ITER]

Drawing the data counts, and two fresh samples for the test error, but not for the time of an iteration, which is the
difference to a training of one iteration only. Needs Linux, which tells the highest memory of a process.
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


if __name__ == "__main__":
    part, d, alpha, *max_iter = map(float, sys.argv[1:])
    trained(part, 10, 1.0)  # the first call loads libraries
    before, start = psutil.Process().memory_info().rss, time.process_time()
    trained(part, int(d), alpha, max_iter=1)  # everything but the further iterations
    middle = time.process_time()
    found = trained(part, int(d), alpha, max_iter=int(max_iter[0]) if max_iter else 5000)
    seconds, iterations = time.process_time() - middle, int(found.n_iter[0])
    result = {
        "seconds": seconds,
        "iterations": iterations,
        "iteration": (seconds - (middle - start)) / (iterations - 1),
        "memory": highest_memory() - before,
    }
    print(json.dumps(result))
