"""How gradient flow leaves the origin: closed forms for a fixed target, and the Hessian of drawn risks."""

import numpy as np
import pytest
import torch

from attn_lib.comparison import estimate
from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample, draw_target
from attn_lib.theory.escape import escape_rates


@pytest.mark.parametrize(("alpha", "sigma"), [(0.3, 0.5), (2.0, 0.5), (0.01, 0.7), (0.1, 2.5)])
def test_closed_form_marchenko_pastur_with_a_spike(alpha, sigma):
    # omega = 1: M = 2 tau sigma^2 sum u u^T/d, tau = 0.1, u = (t_1 - t_2)/sqrt 2 of mean sqrt 2 along 1_d/sqrt d
    problem = PositionalSemantic(alpha=alpha, omega=1.0, sigma=sigma)
    rates = escape_rates(problem)
    unit = 0.2 * sigma**4
    np.testing.assert_allclose(rates.bulk + problem.lam, unit * (1 + alpha**0.5) ** 2, rtol=1e-9)
    strength, gamma = 2 / sigma**2, 1 / alpha
    if strength > gamma**0.5:
        outlier = unit * alpha * (1 + strength) * (1 + gamma / strength)
        alignment = (1 - gamma / strength**2) / (1 + gamma / strength)
    else:
        outlier, alignment = unit * (1 + alpha**0.5) ** 2, 0.0
    np.testing.assert_allclose(rates.positional + problem.lam, outlier, rtol=1e-9)
    np.testing.assert_allclose(rates.positional_alignment, alignment, rtol=1e-7)  # a derivative of the above
    assert rates.semantic == rates.bulk and rates.semantic_alignment == 0


def test_closed_form_uniform_target_leaves_the_penalty_only():
    rates = escape_rates(PositionalSemantic(alpha=2.0, omega=1.0, A=((0.5, 0.5), (0.5, 0.5)), lam=0.03))
    np.testing.assert_allclose(rates[:3], -0.03, rtol=0, atol=1e-5)
    assert rates[3:] == (0, 0)


def hessian_at_zero(problem, d, seed):
    Q_star = draw_target(d, seed)
    sample = draw_sample(problem, Q_star, n=round(problem.alpha * d), seed=seed)
    risk = AttentionRisk([sample], problem.lam, device="cpu", dtype=torch.float64)
    kicks = 1e-3 * torch.eye(d, dtype=torch.float64)[None]  # the gradient is odd: errors of order 1e-6
    hessian = (risk.adjoint(risk.loss(risk.fields(kicks))[1]) / 1e-3 + problem.lam * kicks / 1e-3)[0].numpy()
    return (hessian + hessian.T) / 2, Q_star


@pytest.mark.parametrize("d", [200, 600])
def test_theory_matches_simulation_of_the_hessian_at_zero(d):
    problem = PositionalSemantic(alpha=4.0, omega=0.1)
    rates, measured = escape_rates(problem), []
    for seed in range(2400 // d):
        hessian, Q_star = hessian_at_zero(problem, d, seed)
        values, vectors = np.linalg.eigh(-hessian)
        ones, target = vectors.sum(0) ** 2 / d, (Q_star @ vectors) ** 2 / (Q_star @ Q_star)
        measured.append([values[-1], values[-2], ones[-1], target[-2]])
    theory = rates.positional, rates.semantic, rates.positional_alignment, rates.semantic_alignment
    for value, samples in zip(theory, np.array(measured).T, strict=True):
        e = estimate(samples)
        assert abs(e.value - value) < 4 * e.error + value * 20 / d  # c/d with c of order 10: |p|^2 against sigma^2 d
    assert rates.semantic > rates.bulk
