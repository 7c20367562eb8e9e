"""Fixed points of the state evolution: attn_lib, and the plain way of :mod:`plain_theory`.

The error is the largest relative one of an overlap (Part I) or a conjugate (Part II), against a finer solution.
"""

from functools import lru_cache

import plain_theory
import pytest

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import MarchenkoPastur, PositionalSemantic, PowerLaw, SingleHead
from attn_lib.theory import positional_semantic, single_head
from attn_lib.theory.cavity import cavity_averages

PART1 = PositionalSemantic(alpha=1.5, omega=0.3)
TARGETS = {"Marchenko-Pastur": MarchenkoPastur(kappa0=0.5), "power law, d = 400": PowerLaw(gamma=1.0, d=400)}


def part2(target, alpha):
    return SingleHead(alpha=alpha, lam=0.01, Delta=0.5, kappa=1.0, target=TARGETS[target])


@lru_cache
def finer(problem, start=None):
    if start is not None:
        return positional_semantic.solve(problem, start, accuracy=1e-7).overlaps
    try:
        return single_head.solve(problem, accuracy=1e-7).hats
    except ConvergenceError as failure:  # the finest rule there is
        return failure.partial.hats


def error(found, reference):
    return max(abs(a / b - 1) for a, b in zip(map(float, found), reference, strict=True) if b)


@pytest.mark.benchmark(group="state evolution")
@pytest.mark.parametrize("accuracy", [1e-4, 1e-6])
@pytest.mark.parametrize("start", ["semantic", "positional"])
def bench_part1(timed, benchmark, start, accuracy):
    way = f"attn_lib, accuracy {accuracy:.0e}"
    solve = positional_semantic.solve
    found = timed(f"Part I, {start}", way, lambda: solve(PART1, start, accuracy=accuracy), rounds=3)
    benchmark.extra_info.update(updates=found.n_iter, error=error(found.overlaps, finer(PART1, start)))


@pytest.mark.benchmark(group="state evolution")
@pytest.mark.parametrize("degree", [7, 15])
@pytest.mark.parametrize("start", ["semantic", "positional"])
def bench_part1_plain(timed, benchmark, start, degree):
    way = f"tensor rule of degree {degree}"
    overlaps, updates = timed(f"Part I, {start}", way, plain_theory.positional_semantic, PART1, start, degree, rounds=1)
    benchmark.extra_info.update(updates=updates, error=error(overlaps, finer(PART1, start)))


@pytest.mark.benchmark(group="state evolution")
@pytest.mark.parametrize("accuracy", [1e-4, 1e-6])
@pytest.mark.parametrize(
    ("target", "alpha"), [("Marchenko-Pastur", 0.5), ("Marchenko-Pastur", 2.0), ("power law, d = 400", 0.5)]
)
def bench_part2(timed, benchmark, target, alpha, accuracy):
    problem, way = part2(target, alpha), f"attn_lib, accuracy {accuracy:.0e}"
    found = timed(
        f"Part II, {target}, alpha = {alpha}", way, lambda: single_head.solve(problem, accuracy=accuracy), rounds=2
    )
    benchmark.extra_info.update(updates=found.n_iter, error=error(found.hats, finer(problem)))


@pytest.mark.benchmark(group="state evolution")
@pytest.mark.parametrize("degree", [7, 15])
@pytest.mark.parametrize("alpha", [0.5, 2.0])
def bench_part2_plain(timed, benchmark, alpha, degree):
    problem, way = part2("Marchenko-Pastur", alpha), f"tensor rule of degree {degree}"
    case = f"Part II, Marchenko-Pastur, alpha = {alpha}"
    hats, updates = timed(case, way, plain_theory.single_head, problem, degree, rounds=1)
    benchmark.extra_info.update(updates=updates, error=error(hats, finer(problem)))


AVERAGE = "E|g|^2 of Part I, positional branch, where the proximal operator jumps"


def average_error(g_g):
    """At a fixed point alpha E|g|^2 is the conjugate of q."""
    exact = positional_semantic.solve(PART1, "positional", accuracy=1e-6).hats.q_hat / PART1.alpha
    return float(abs(g_g / exact - 1))


@pytest.mark.benchmark(group="one average")
def bench_average(timed, benchmark):
    solution = positional_semantic.solve(PART1, "positional")
    averages = timed(AVERAGE, "attn_lib", cavity_averages, PART1, finer(PART1, "positional"), solution.rule)
    benchmark.extra_info["error"] = average_error(averages.g_g)


@pytest.mark.benchmark(group="one average")
@pytest.mark.parametrize("degree", [7, 15, 23])
def bench_average_plain(timed, benchmark, degree):
    nodes, weights = plain_theory.tensor_rule(degree)
    plain, overlaps = plain_theory.cavity_averages, finer(PART1, "positional")
    averages = timed(AVERAGE, f"tensor rule of degree {degree}", plain, PART1, overlaps, nodes, weights, rounds=1)
    benchmark.extra_info["error"] = average_error(averages[1])
