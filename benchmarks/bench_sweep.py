"""What a sweep adds to each of its cells: a measurement that takes no time, in a sweep and in a loop.

By the clock on the wall, since writing to a disk is waiting.
"""

import time
from itertools import count

import pytest

from attn_lib.problems import PositionalSemantic
from attn_lib.sweep import grid, run

CELLS = 200


def nothing(problem):
    return {"alpha": problem.alpha}


def cells():
    return grid(PositionalSemantic, alpha=[1 + i / CELLS for i in range(CELLS)], omega=[0.3])


@pytest.mark.benchmark(group="sweep", timer=time.perf_counter)
def bench_sweep(timed, tmp_path):
    number = count()

    def sweep():
        run("bench_sweep.nothing", cells(), tmp_path / str(next(number)), workers=1, progress=False)

    timed("cells", "attn_lib", sweep, rounds=3, points=CELLS)


@pytest.mark.benchmark(group="sweep", timer=time.perf_counter)
def bench_resumed(timed, tmp_path):
    """When all cells are there."""
    arguments = "bench_sweep.nothing", cells(), tmp_path
    run(*arguments, workers=1, progress=False)
    timed("cells", "resumed", lambda: run(*arguments, workers=1, progress=False), rounds=3, points=CELLS)


@pytest.mark.benchmark(group="sweep", timer=time.perf_counter)
def bench_loop(timed):
    timed("cells", "loop", lambda: [nothing(cell.problem) for cell in cells()], rounds=3, points=CELLS)
