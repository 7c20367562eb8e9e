"""State evolution of Part II against trained layers, at two sizes d.

Tolerance: 4 standard errors of the mean over data sets, plus 4/d relative. The theory is the limit d -> infinity with
corrections of order 1/d; 4/d was fixed beforehand, as 4 % at d = 100.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from attn_lib.comparison import estimate
from attn_lib.problems import FiniteRank, MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.theory import single_head

DEFAULT = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
PROBLEMS = {
    "few samples": DEFAULT,
    "many samples": replace(DEFAULT, alpha=2.0),
    "no noise": replace(DEFAULT, alpha=1.0, lam=0.1, Delta=0.0),
    "power law": replace(DEFAULT, target=PowerLaw(gamma=1.0, d=10)),
}
SIZES = {30: range(10), 50: range(6)}
NAMES = ("test_error", "train_loss", "penalty", "rank", "m", "q")


@cache
def solved(name):
    return single_head.solve(PROBLEMS[name], accuracy=1e-3)


@cache
def trained(name, d):
    e = train_single_head(PROBLEMS[name], d=d, seeds=SIZES[d], device="cpu", dtype="float32")
    assert e.converged.all()
    return e


def value(solution, name):
    return getattr(solution.overlaps if name in "mq" else solution, name)


def tolerance(e, theory, d):
    return 4 * e.error + 4 / d * abs(theory)


@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_theory_matches_simulation(problem, d):
    for name in NAMES:
        theory, e = value(solved(problem), name), estimate(getattr(trained(problem, d), name))
        assert abs(e.value - theory) <= tolerance(e, theory, d), name


def test_theory_matches_simulation_target_by_target():
    """With the eigenvalues that were drawn, differences no longer contain the fluctuations of the target."""
    e = trained("few samples", 50)
    spectra = np.linalg.eigvalsh(e.S0)
    targets = [FiniteRank(eigenvalues=np.where(s > 1e-9, s, 0.0)) for s in spectra]
    drawn = [single_head.solve(replace(DEFAULT, target=t), accuracy=1e-3) for t in targets]
    for name in NAMES:
        theory = np.array([value(s, name) for s in drawn])
        difference = estimate(getattr(e, name) - theory)
        assert abs(difference.value) <= tolerance(difference, theory.mean(), 50), name
    plain, paired = (estimate(e.q - q) for q in (0.0, [s.overlaps.q for s in drawn]))
    assert paired.error < plain.error


@pytest.mark.parametrize("name", ["test_error", "train_loss"])
def test_theory_matches_simulation_but_not_that_of_four_times_the_samples(name):
    e, theory = estimate(getattr(trained("few samples", 50), name)), value(solved("many samples"), name)
    assert abs(e.value - theory) > tolerance(e, theory, 50)


def test_identity_widths_of_equal_penalty_learn_the_same_matrix():
    """They minimise the same function of S; the distance is what the tolerance on the gradient leaves."""
    narrow, wide = (
        train_single_head(replace(DEFAULT, kappa=kappa, lam=0.01 / kappa**0.5), d=30, seeds=range(3), device="cpu")
        for kappa in (0.8, 1.5)
    )
    np.testing.assert_allclose(narrow.eigenvalues, wide.eigenvalues, rtol=0, atol=1e-3)
    np.testing.assert_allclose(narrow.train_loss, wide.train_loss, rtol=1e-4, atol=0)
    np.testing.assert_allclose(narrow.penalty, wide.penalty, rtol=1e-4, atol=0)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_identity_rank_squared_is_at_most_the_degrees_of_freedom_at_most_the_measurements(problem):
    s = solved(problem)
    degrees = s.overlaps.Sigma * s.hats.Sigma_hat
    assert s.rank**2 <= degrees <= 4 * PROBLEMS[problem].alpha
