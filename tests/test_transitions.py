"""Transitions of Part I against published numbers, an independent root search, and their own conditions."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

from attn_lib.problems import PositionalSemantic
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory import transitions
from attn_lib.theory.branches import branch_limits

# what several tests look at
alpha_c, alpha_l = cache(transitions.alpha_c), cache(transitions.alpha_l)


@pytest.mark.parametrize(("omega", "converged"), [(0.1, 0.7508), (0.3, 1.2515)])
def test_published_alpha_c(omega, converged):
    """Converged replica-symmetric values of an independent computation, within 1e-3."""
    assert abs(alpha_c(omega) - converged) < 1e-3


@pytest.mark.parametrize(("omega", "converged"), [(0.1, 0.8928), (0.3, 1.4923)])
def test_published_alpha_l(omega, converged):
    assert abs(alpha_l(omega) - converged) < 2e-3


def test_agrees_with_a_root_search_without_derivatives():
    problem = PositionalSemantic(alpha=1.0, omega=0.2, sigma=0.45, lam=0.008)

    def difference(alpha):
        semantic, positional = (ps.solve(replace(problem, alpha=alpha), s) for s in ("semantic", "positional"))
        return semantic.train_loss - positional.train_loss

    expected = brentq(difference, 1.2, 1.6, rtol=1e-4)
    found = transitions.alpha_c(0.2, sigma=0.45, lam=0.008, guess=1.1)
    np.testing.assert_allclose(found, expected, rtol=3e-4)  # the tolerance of the search, three times


def test_identity_the_guess_does_not_matter():
    np.testing.assert_allclose(transitions.alpha_c(0.3, guess=2.5), alpha_c(0.3), rtol=1e-4)  # beyond it, and below


def test_identity_baseline_is_matched_at_alpha_l():
    alpha = alpha_l(0.3)
    problem = PositionalSemantic(alpha=alpha, omega=0.3)
    semantic, linear = ps.solve(problem, "semantic"), ps.linear_baseline(problem)
    np.testing.assert_allclose(semantic.test_error, linear.test_error, rtol=2e-4)  # accuracies 1e-4 and 1e-5
    assert alpha > alpha_c(0.3)


def test_agrees_with_a_finer_accuracy_within_the_reported_error():
    coarse, fine = (transitions.locate_alpha_c(0.425, accuracy=accuracy, guess=1.96) for accuracy in (3e-5, 5e-6))
    assert abs(coarse.alpha - fine.alpha) < coarse.error + fine.error
    assert fine.error < 0.3 * coarse.error


def test_identity_the_second_mixing_has_no_positional_branch():
    """A_11 + A_22 < 1 asks positions to attend to the other token, which tied queries and keys cannot."""
    A = ((0.3, 0.7), (0.8, 0.2))
    problem = PositionalSemantic(alpha=1.0, omega=0.3, A=A)
    for alpha in (0.5, 4.0):
        point = ps.solve(replace(problem, alpha=alpha), "positional", accuracy=1e-2)
        assert point.collapsed
        assert point.response_m < 1
    with pytest.raises(transitions.NoTransition, match="no positional branch up to"):
        transitions.alpha_c(0.3, A=A, guess=0.3)


def test_identity_stored_transitions_increase_in_order():
    """The table of the book: alpha_c and alpha_l increase with omega, alpha_l lies above, the errors are honest."""
    data = json.loads((Path(__file__).parents[1] / "book/data/transitions.json").read_text())["parts"]
    found = {}
    for name in ("alpha_c", "alpha_l"):
        coarse, fine = (
            {
                float(key.split("/")[1]): part["value"]
                for key, part in data.items()
                if key.startswith(f"{name}/") and key.endswith(f"/{which}")
            }
            for which in ("coarse", "fine")
        )
        assert len(fine) == 10
        assert coarse.keys() >= fine.keys()
        for omega, value in fine.items():
            assert abs(value["alpha"] - coarse[omega]["alpha"]) < value["error"] + coarse[omega]["error"]
        found[name] = np.array([fine[omega]["alpha"] for omega in sorted(fine)])
        assert (np.diff(found[name]) > 0).all()
    assert (found["alpha_l"] > found["alpha_c"]).all()


def test_published_branch_limits():
    """Limits read off at omega = .1 by an independent computation, given to three digits."""
    limits = branch_limits(0.1, n_scan=13, alpha_max=4.0, accuracy=1e-3)
    assert abs(limits.positional_end - 1.285) < 2e-3
    assert limits.positional_birth < limits.semantic_birth < limits.semantic_stable < limits.positional_end
    below, above = (
        ps.solve(PositionalSemantic(alpha=limits.semantic_birth * f, omega=0.1), "semantic") for f in (0.97, 1.03)
    )
    assert below.collapsed
    assert not above.collapsed


def test_rejects_a_transition_that_does_not_happen():
    for transition in (transitions.alpha_c, transitions.alpha_l):
        with pytest.raises(transitions.NoTransition, match="omega = 1: the target has no semantic part"):
            transition(1.0)
    with pytest.raises(transitions.NoTransition, match="no crossing of existing branches"):
        transitions.alpha_c(0.8, accuracy=1e-2, guess=35.0)
    with pytest.raises(ValueError, match="omega = 1.2"):
        transitions.alpha_c(1.2)
