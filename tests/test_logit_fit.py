"""Least squares in the logits of the labels, theory and simulation, and what is located with it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attn_lib.claims import stored
from attn_lib.comparison import estimate
from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.simulation import logit_fit
from attn_lib.simulation.logit_fit import LogitLoss, fit_logits
from attn_lib.theory.logit_fit import solve_logits
from attn_lib.theory.ridgeless import solve_ridgeless
from attn_lib.theory.thresholds import alpha_interpolation, alpha_recovery

HALF = MarchenkoPastur(kappa0=0.5)
PROBLEM = SingleHead(alpha=0.2, lam=0.02, Delta=0.5, kappa=1.0, target=HALF)


def symmetric(rng, n_tokens):
    G = rng.standard_normal((4, n_tokens, n_tokens))
    return G + G.transpose(0, 2, 1)


@pytest.mark.parametrize("n_tokens", [2, 3])
def test_closed_form_distance_from_logits(n_tokens):
    """Half the squared Frobenius norm of the difference of the fields, without its component along all ones."""
    rng = np.random.default_rng(0)
    field, other = symmetric(rng, n_tokens), symmetric(rng, n_tokens)
    loss = LogitLoss(torch.softmax(2.5 * torch.as_tensor(field), dim=-1)[None], 2.5)
    pairs = np.triu_indices(n_tokens)
    value, gradient = loss.value_and_gradient(torch.as_tensor(other[:, *pairs])[None])
    D = other - field
    D -= D.mean(axis=(1, 2), keepdims=True)
    # rounding; the gradient of |D|^2/2 counts an entry off the diagonal twice
    np.testing.assert_allclose(value.item(), (D**2).sum() / 2, rtol=1e-12, atol=0)
    twice = np.where(pairs[0] == pairs[1], 1.0, 2.0)
    np.testing.assert_allclose(gradient[0], twice * D[:, *pairs], rtol=0, atol=1e-12)


def test_agrees_with_precision_of_differences():
    """Two tokens: u = z_11 - z_12, v = z_22 - z_12, of variance 3 and covariance 1, are weighted by their precision."""
    rng = np.random.default_rng(1)
    field, other = symmetric(rng, 2), symmetric(rng, 2)
    loss = LogitLoss(torch.softmax(torch.as_tensor(field), dim=-1)[None], 1.0)
    value, _ = loss.value_and_gradient(torch.as_tensor(other[:, [0, 0, 1], [0, 1, 1]])[None])
    r = np.stack([(other - field)[:, i, i] - (other - field)[:, 0, 1] for i in (0, 1)], axis=1)
    expected = np.einsum("ni,ij,nj->", r, np.linalg.inv([[3, 1], [1, 3]]), r)
    np.testing.assert_allclose(value.item(), expected, rtol=1e-12, atol=0)


def test_identity_start_does_not_matter():
    """The problem is convex in S, and W has full width."""
    near = fit_logits(PROBLEM, d=16, seeds=range(2))
    far = fit_logits(PROBLEM, d=16, seeds=range(2), start=3 * np.random.default_rng(2).standard_normal((2, 16, 16)))
    S = [fit.W @ fit.W.transpose(0, 2, 1) / 16 for fit in (near, far)]
    np.testing.assert_allclose(S[0], S[1], rtol=0, atol=1e-2)  # entries are of order 1; gradients below 1e-2
    np.testing.assert_allclose(near.residual, far.residual, rtol=1e-3, atol=0)  # second order in that


def test_identity_runs_of_a_batch_do_not_see_each_other():
    together, alone = (fit_logits(PROBLEM, d=12, seeds=seeds) for seeds in (range(3), [1]))
    np.testing.assert_allclose(together.residual[1:2], alone.residual, rtol=1e-6, atol=0)  # other order of sums
    np.testing.assert_allclose(together.matrix_error[1:2], alone.matrix_error, rtol=1e-4, atol=0)


@pytest.mark.parametrize("Delta", [0.0, 0.5])
def test_agrees_with_the_interpolating_phase(Delta):
    fit, phase = (
        solve(HALF, alpha=0.1, Delta=Delta, **more)
        for solve, more in ((solve_logits, {"lam": 0.0}), (solve_ridgeless, {}))
    )
    found = [fit.delta, fit.epsilon, fit.matrix_error]
    wanted = [phase.delta, phase.epsilon, HALF.second_moment - 2 * phase.m + phase.q]
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=0)  # ten times the accuracy of either
    np.testing.assert_allclose(fit.residual, 0, rtol=0, atol=1e-9)


def test_agrees_with_the_thresholds():
    """The residual grows from 0 at the one, the error without noise falls to 0 at the other; both linearly."""
    border = alpha_interpolation(HALF, Delta=0.5)
    steps = np.array([1e-4, 2e-4])
    residuals = [solve_logits(HALF, alpha=border + step, Delta=0.5, lam=0.0).residual for step in steps]
    np.testing.assert_allclose(residuals[1] / residuals[0], 2, rtol=2e-3, atol=0)  # curvature, of order step/border
    assert solve_logits(HALF, alpha=border - 1e-4, Delta=0.5, lam=0.0).epsilon > 0
    for kappa0 in (0.25, 0.5):
        perfect = alpha_recovery(kappa0)
        errors = [
            solve_logits(MarchenkoPastur(kappa0=kappa0), alpha=perfect - step, Delta=0.0, lam=0.0).matrix_error
            for step in 10 * steps
        ]
        np.testing.assert_allclose((errors[1] / errors[0]) ** 0.5, 2, rtol=2e-2, atol=0)  # of order 10 step/perfect


def test_identity_only_the_number_of_equations_matters():
    two = solve_logits(HALF, alpha=0.2, Delta=0.5, lam=0.01)
    three = solve_logits(HALF, alpha=0.2 * 4 / 10, Delta=0.5, lam=0.01, n_tokens=3)
    np.testing.assert_allclose(three, two, rtol=1e-7, atol=0)


def test_identity_small_lam_is_the_limit():
    """Above the threshold epsilon is of order lam, and so is the change of everything else."""
    limit, small = (solve_logits(HALF, alpha=0.2, Delta=0.5, lam=lam) for lam in (0.0, 1e-7))
    np.testing.assert_allclose(small, limit, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("alpha", "n_tokens"), [(0.1, 2), (0.3, 2), (0.1, 3)])
def test_theory_matches_simulation_of_logits(alpha, n_tokens):
    problem = replace(PROBLEM, alpha=alpha, lam=0.2, n_tokens=n_tokens)
    fit = fit_logits(problem, d=40, seeds=range(4))
    theory = solve_logits(HALF, alpha=alpha, Delta=0.5, lam=problem.lam, n_tokens=n_tokens)
    for name in ("residual", "matrix_error"):
        measured, expected = estimate(getattr(fit, name)), getattr(theory, name)
        # relative biases of order 1/d add up: 1/d of the unknowns, 4/(3 d) of Q0 for a Wishart target, others
        np.testing.assert_allclose(measured.value, expected, rtol=5 / 40, atol=5 * measured.error)


def test_rejects_bad_input(monkeypatch):
    for fields, name in (({"lam": -1.0}, "lam = -1.0"), ({"alpha": 0.0}, "alpha = 0.0"), ({"Delta": -1}, "Delta = -1")):
        with pytest.raises(ValueError, match=name):
            solve_logits(HALF, **{"alpha": 0.1, "Delta": 0.5, "lam": 0.1, **fields})
    with pytest.raises(ConvergenceError, match="no root for delta"):
        solve_logits(HALF, alpha=0.3, Delta=0.0, lam=0.0)  # S = S0
    for options, name in (
        ({"d": 1}, "d = 1"),
        ({"seeds": []}, "seeds = "),
        ({"seeds": [1, 1]}, "seeds = "),
        ({"seeds": 3}, "seeds = 3"),
        ({"start": np.zeros((1, 8, 7))}, "start = "),
        ({"start": np.full((1, 8, 8), np.nan)}, "start = "),
    ):
        with pytest.raises(ValueError, match=name):
            fit_logits(PROBLEM, **{"d": 8, "seeds": [0], **options})
    with pytest.raises(ValueError, match="problem = .*must be a SingleHead"):
        fit_logits(HALF, d=8, seeds=[0])
    with pytest.raises(ValueError, match="problem = .*labels are > 0"):
        fit_logits(replace(PROBLEM, Delta=1e8), d=8, seeds=[0])
    monkeypatch.setattr(logit_fit, "_MAX_ITER", 2)
    with pytest.raises(ConvergenceError, match=r"after \[2\] iterations") as stopped:
        fit_logits(PROBLEM, d=8, seeds=[0])
    assert stopped.value.partial.residual > 0


def test_rejects_stored_evidence_that_is_not_there(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="kind = 'nothing': must be one of"):
        stored.stored_parts("thresholds", "nothing")
    monkeypatch.setattr(stored, "FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match="comes with the repository"):
        stored.stored_parts("thresholds", "bayes")
