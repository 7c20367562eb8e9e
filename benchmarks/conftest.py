"""What all benchmarks share: one thread, and how a call is timed."""

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import pytest


@pytest.fixture
def timed(benchmark):
    """Time a call in some rounds, after one that is not counted (unless there is one round only); returns its result.

    ``case`` is what is computed, the same for all ``way``s to it; ``known`` is stored with them. The least time of all
    rounds is reported.
    """

    def run(case, way, function, *arguments, rounds=5, **known):
        benchmark.extra_info.update(case=case, way=way, **known)
        return benchmark.pedantic(function, arguments, rounds=rounds, warmup_rounds=int(rounds > 1))

    return run
