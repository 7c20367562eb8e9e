"""How time and memory grow: of training with d and n, of the theory with accuracy and the number of eigenvalues.

``x`` is what grows. Each training is the work of a process of its own, which tells its time and memory.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from attn_lib.problems import MarchenkoPastur, PositionalSemantic, PowerLaw, SingleHead
from attn_lib.spectra import FreeConvolution
from attn_lib.spectra.binned import shortened
from attn_lib.theory import positional_semantic, single_head, spectral_prior

FRESH = Path(__file__).with_name("fresh.py")


def training(timed, benchmark, case, x, *arguments):
    command = [sys.executable, str(FRESH), *map(str, arguments)]
    run = timed(
        case, "attn_lib", lambda: subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True), rounds=1
    )
    benchmark.extra_info.update(x=x, **json.loads(run.stdout))


@pytest.mark.benchmark(group="growth of training")
@pytest.mark.parametrize("d", [500, 1000, 2000, 4000])
def bench_part1_d(timed, benchmark, d):
    training(timed, benchmark, "Part I, d at alpha = 1.5", d, 1, d, 1.5)


@pytest.mark.benchmark(group="growth of training")
@pytest.mark.parametrize("n", [1000, 2000, 4000, 8000])
def bench_part1_n(timed, benchmark, n, d=1000):
    training(timed, benchmark, "Part I, n at d = 1000", n, 1, d, n / d)


@pytest.mark.benchmark(group="growth of training")
@pytest.mark.parametrize("d", [50, 75, 110, 160])
def bench_part2_d(timed, benchmark, d):
    training(timed, benchmark, "Part II, d at alpha = 0.5", d, 2, d, 0.5)


@pytest.mark.benchmark(group="growth of training")
@pytest.mark.parametrize("n", [1600, 3200, 6400, 12800])
def bench_part2_n(timed, benchmark, n, d=80):
    training(timed, benchmark, "Part II, n at d = 80", n, 2, d, n / d**2)


@pytest.mark.benchmark(group="growth of an iteration")
@pytest.mark.parametrize("d", [100, 160, 250, 400])
def bench_part2_iteration_d(timed, benchmark, d, max_iter=4):
    """Larger sizes: time of an iteration, and memory, need no minimum."""
    training(timed, benchmark, "Part II, d at alpha = 0.2", d, 2, d, 0.2, max_iter)


@pytest.mark.benchmark(group="growth of an iteration")
@pytest.mark.parametrize("n", [5000, 10_000, 20_000, 40_000])
def bench_part2_iteration_n(timed, benchmark, n, d=200, max_iter=4):
    training(timed, benchmark, "Part II, n at d = 200", n, 2, d, n / d**2, max_iter)


@pytest.mark.benchmark(group="growth with accuracy")
@pytest.mark.parametrize("accuracy", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("start", ["semantic", "positional"])
def bench_part1_accuracy(timed, start, accuracy):
    problem, solve = PositionalSemantic(alpha=1.5, omega=0.3), positional_semantic.solve
    timed(f"Part I, {start}", "attn_lib", lambda: solve(problem, start, accuracy=accuracy), rounds=2, x=accuracy)


@pytest.mark.benchmark(group="growth with accuracy")
@pytest.mark.parametrize("accuracy", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
def bench_part2_accuracy(timed, accuracy):
    problem = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    timed("Part II", "attn_lib", lambda: single_head.solve(problem, accuracy=accuracy), rounds=2, x=accuracy)


@pytest.mark.benchmark(group="growth with eigenvalues")
@pytest.mark.parametrize("d", [50, 150, 500, 1500, 5000])
def bench_solution(timed, d):
    problem = SingleHead(alpha=0.1, lam=0.1, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=1.0, d=d))
    timed("a solution", "attn_lib", lambda: single_head.solve(problem, accuracy=1e-3), rounds=2, x=d)


@pytest.mark.benchmark(group="growth with eigenvalues")
@pytest.mark.parametrize("d", [50, 150, 500, 1500, 5000])
def bench_solution_full(timed, monkeypatch, d):
    """With all eigenvalues of the list, however long."""
    monkeypatch.setattr(spectral_prior, "shortened", lambda law, delta: law)
    problem = SingleHead(alpha=0.1, lam=0.1, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=1.0, d=d))
    timed("a solution", "not binned", lambda: single_head.solve(problem, accuracy=1e-3), rounds=1, x=d)


@pytest.mark.benchmark(group="growth with eigenvalues")
@pytest.mark.parametrize("d", [50, 150, 500, 1500, 5000])
@pytest.mark.parametrize("way", ["attn_lib", "not binned"])
def bench_tail(timed, way, d, delta=1.0):
    law = PowerLaw(gamma=1.0, d=d)
    law = shortened(law, delta) if way == "attn_lib" else law
    timed("one tail", way, FreeConvolution(law, delta).tail, 0.5, rounds=10, x=d)
