"""The search for lower minima at small d, against minima on the same data."""

import numpy as np
import pytest
import torch

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation import erm
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample
from attn_lib.simulation.search import search_lower_minima

PROBLEM = PositionalSemantic(alpha=0.65, omega=0.0)
D, SEEDS = 120, range(3)


def search(**changes):
    return search_lower_minima(PROBLEM, **({"d": D, "seeds": SEEDS, "start": "positional", "n_rounds": 4} | changes))


@pytest.mark.parametrize("method", ["perturbation", "annealing", "message passing"])
def test_agrees_with_the_risk_of_the_same_data(method):
    """The losses are those of minima of the risk, and the overlaps those of the returned Q."""
    found = search(method=method)
    trained = erm.train_positional_semantic(PROBLEM, d=D, seeds=SEEDS, start="positional", device="cpu")
    np.testing.assert_allclose(found.history[:, 0], trained.train_loss, rtol=1e-8)
    assert (found.train_loss <= found.history[:, 0]).all()
    np.testing.assert_array_equal(found.train_loss, found.history[:, -1])
    for i, seed in enumerate(SEEDS):
        sample = draw_sample(PROBLEM, trained.Q_star[i], n=round(PROBLEM.alpha * D), seed=seed)
        risk = AttentionRisk([sample], PROBLEM.lam, device="cpu", dtype=torch.float64)
        again = minimise(risk, torch.as_tensor(found.Q[i])[None, None], tolerance=1e-6, max_iter=100)
        np.testing.assert_allclose(again.value.item() / D, found.train_loss[i], rtol=1e-7)
        Q, Q_star = found.Q[i], trained.Q_star[i]
        np.testing.assert_allclose(
            (found.q[i], found.m[i], found.theta[i]),
            (0.25 * (Q @ Q) / D, abs(Q.mean()), 0.25 * abs(Q @ Q_star) / D),
            rtol=1e-12,
        )
        assert found.m[i] > found.theta[i] / 0.25  # still on its branch


def test_identity_a_search_never_goes_up_and_finds_something():
    found = search(n_rounds=10, size=3.0, seeds=range(6))
    assert (np.diff(found.history) <= 0).all()
    assert (found.train_loss < found.history[:, 0]).any()  # fails if no start is ever kept
    lower = found.train_loss < found.history[:, 0]
    assert (found.distance[lower] > 1e-4).all()
    assert (found.distance[~lower] < 1e-8).all()


def test_identity_seeds_decide():
    np.testing.assert_array_equal(search().history, search().history)
    one = search(seeds=[2])
    # alone or in a batch with other seeds: rounding, amplified along the path
    np.testing.assert_allclose(one.history[0], search().history[2], rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": "random"}, "start = 'random': must be 'semantic' or 'positional'"),
        ({"method": "luck"}, "method = 'luck': must be one of"),
        ({"size": 0.0}, "size = 0.0: must be a finite number > 0"),
        ({"size": np.nan}, "size = nan: must be a finite number > 0"),
        ({"method": "message passing", "size": 2.5}, "size = 2.5: must be an integer >= 1"),
        ({"n_rounds": 0}, "n_rounds = 0: must be an integer >= 1"),
        ({"n_runs": 1.5}, "n_runs = 1.5: must be an integer >= 1"),
        ({"d": 1}, "d = 1: must be an integer >= 2"),
    ],
)
def test_rejects(changes, message):
    with pytest.raises(ValueError, match=message):
        search(**changes)
