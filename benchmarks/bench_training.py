"""Training to the minimum of one data set: attn_lib and the published recipes, from the same start.

attn_lib stops at its default tolerance. The others stop as soon as their risk is as close to the minimum (found by
attn_lib at a hundredth of the tolerance), but not closer than 1e-9, or after the 5000 gradients of the recipe.
"""

from functools import lru_cache, partial

import pytest
import torch
from plain_training import positional_semantic_risk, single_head_risk, train

from attn_lib.problems import MarchenkoPastur, PositionalSemantic, SingleHead
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample, draw_target
from attn_lib.simulation.sensing import TokenMeasurement
from attn_lib.simulation.single_head_risk import FactorisedRisk, attention_loss
from attn_lib.simulation.single_head_sampling import draw_matrix, draw_start, labelled_tokens

CLOSE = 1e-9
PART1 = PositionalSemantic(alpha=1.5, omega=0.3)
PART2 = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
RECIPES = {
    "L-BFGS of torch": partial(torch.optim.LBFGS, line_search_fn="strong_wolfe", history_size=10),
    "Adam, rate 0.1": partial(torch.optim.Adam, lr=0.1),
    "Adam, rate 0.02": partial(torch.optim.Adam, lr=0.02),
    "gradient descent, step 0.15": partial(torch.optim.SGD, lr=0.15),
}


class Part1:
    """Data, the start Q*, and the two ways to train."""

    def __init__(self, d):
        Q_star = draw_target(d, seed=0)
        self.sample = draw_sample(PART1, Q_star, n=round(PART1.alpha * d), seed=0)
        self.x, self.T, self.start = (torch.as_tensor(a) for a in (*self.sample, Q_star))
        self.unit = PART1.lam * d**0.5

    def ours(self, tolerance):
        risk = AttentionRisk([self.sample], PART1.lam, device=torch.device("cpu"), dtype=torch.float64)
        return minimise(risk, self.start[None, None], tolerance=tolerance * self.unit, max_iter=1000)

    def plain_risk(self, Q):
        return positional_semantic_risk(PART1, self.x, self.T, Q)

    tolerance = 1e-5


class Part2:
    """Data, a Gaussian start, and the two ways to train."""

    def __init__(self, d):
        self.x, self.Y = labelled_tokens(PART2, draw_matrix(PART2, d, 0), n=round(PART2.alpha * d**2), seed=0)
        self.start = torch.as_tensor(draw_start(d, d, 0, 0))

    def ours(self, tolerance):
        d, x, Y = len(self.start), self.x[None], self.Y[None]
        risk = FactorisedRisk(TokenMeasurement(x), attention_loss(PART2, "seq2lab", x, Y), PART2.lam, d=d, p=d)
        return minimise(risk, self.start.flatten()[None], tolerance=tolerance * 2 * PART2.lam * d, max_iter=5000)

    def plain_risk(self, W):
        return single_head_risk(PART2, self.x, self.Y, W)

    tolerance = 1e-4


@lru_cache
def prepared(part, d):
    """The data, and the minimum of the risk."""
    data = {1: Part1, 2: Part2}[part](d)
    return data, data.ours(data.tolerance / 100).value.item()


def case(part, d):
    return f"Part {'I' * part}, d = {d}"


@pytest.mark.benchmark(group="training")
@pytest.mark.parametrize(("part", "d"), [(1, 400), (1, 1000), (2, 60), (2, 100)])
def bench_attn_lib(timed, benchmark, part, d):
    data, minimum = prepared(part, d)
    found = timed(case(part, d), "attn_lib", data.ours, data.tolerance, rounds=3)
    excess = abs(found.value.item() / minimum - 1)
    benchmark.extra_info.update(gradients=1 + found.n_iter.item(), excess=excess)


@pytest.mark.benchmark(group="training")
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(("part", "d"), [(1, 400), (2, 60)])
def bench_recipe(timed, benchmark, part, d, recipe):
    data, minimum = prepared(part, d)
    below = (1 + max(CLOSE, data.ours(data.tolerance).value.item() / minimum - 1)) * minimum
    plain = partial(train, RECIPES[recipe], data.plain_risk, data.start, below=below)
    plain(most=2)  # the first call loads libraries
    gradients, value = timed(case(part, d), recipe, plain, rounds=1)
    benchmark.extra_info.update(gradients=gradients, excess=value / minimum - 1)


@pytest.mark.benchmark(group="training")
@pytest.mark.parametrize("recipe", ["L-BFGS of torch", "Adam, rate 0.1"])
@pytest.mark.parametrize(("part", "d"), [(1, 1000), (2, 100)])
def bench_recipe_larger(timed, benchmark, part, d, recipe):
    bench_recipe(timed, benchmark, part, d, recipe)
