"""The recipe of the published curves: its rules, what it returns, and where it goes as its degree grows."""

import numpy as np
import pytest

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import PositionalSemantic
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory.product_rule import damped_steps, gauss_hermite, rule_fixed_point, stroud_secrest

PROBLEM = PositionalSemantic(alpha=2.0, omega=0.3)


@pytest.mark.parametrize(("rule", "degree"), [(stroud_secrest(), 7), (gauss_hermite(4), 7), (gauss_hermite(6), 11)])
def test_closed_form_degree(rule, degree):
    """All Gaussian moments up to the degree, and one beyond that the rule misses."""
    (x, y), weight = rule
    odd_factorial = {0: 1, 2: 1, 4: 3, 6: 15, 8: 105, 10: 945, 12: 10395}
    for i in range(degree + 1):
        for j in range(degree + 1 - i):
            exact = odd_factorial.get(i, 0) * odd_factorial.get(j, 0)
            np.testing.assert_allclose((weight * x**i * y**j).sum(), exact, rtol=1e-10, atol=1e-9)
    assert abs((weight * x ** (degree + 1)).sum() - odd_factorial[degree + 1]) > 1


@pytest.mark.parametrize(
    ("start", "overlap", "published"),
    [("semantic", "theta", (0.1141502, 0.1585606)), ("positional", "m", (0.0500123, 0.2585672))],
)
def test_published_overlaps_are_those_of_the_recipe(start, overlap, published):
    """The authors' stored curves at alpha = 2; their steps stop at residuals of 1e-4, the size of a last step."""
    found = damped_steps(PROBLEM, start, stroud_secrest()).overlaps
    np.testing.assert_allclose((found.q, getattr(found, overlap)), published, rtol=0, atol=1e-4)


@pytest.mark.parametrize("start", ["semantic", "positional"])
def test_agrees_with_the_rule_that_follows_the_jumps(start):
    """At degree 25 one node of the product rule weighs up to 2 %, and a jump may meet it: the error of an overlap.

    The train loss is stationary in the overlaps, so a tenth of that is asked of it.
    """
    exact = ps.solve(PROBLEM, start)
    found = rule_fixed_point(PROBLEM, exact.overlaps, gauss_hermite(13))
    np.testing.assert_allclose(found.overlaps, exact.overlaps, rtol=0.02)
    np.testing.assert_allclose(found.train_loss, exact.train_loss, rtol=0.002)


def test_identity_damped_steps_end_near_the_fixed_point_of_the_rule():
    """A residual below 1e-7 is a distance below 1e-6 if no eigenvalue of the update exceeds 0.9."""
    stopped = damped_steps(PROBLEM, "semantic", stroud_secrest(), tolerance=1e-7)
    limit = rule_fixed_point(PROBLEM, stopped.overlaps, stroud_secrest(), tolerance=1e-9)
    np.testing.assert_allclose(stopped.overlaps[:3], limit.overlaps[:3], rtol=0, atol=1e-6)


def test_rejects_bad_damping_and_reports_no_convergence():
    with pytest.raises(ValueError, match=r"damping = 1: must be in \[0, 1\)"):
        damped_steps(PROBLEM, "semantic", stroud_secrest(), damping=1)
    with pytest.raises(ConvergenceError, match="after 3 updates") as caught:
        damped_steps(PROBLEM, "semantic", stroud_secrest(), max_iter=3)
    assert caught.value.partial.q > 0
