"""Answers to exercises of Part I: phase_transition, linear_baseline, gradient_descent.

Unless an exercise says otherwise sigma = 0.5, lam = 0.01, and A is the default.
"""

import numpy as np

from attn_lib.exercises.answer import Answer

__all__ = ["ANSWERS"]


def _pitchfork():
    # an odd update: theta^2 is linear in the distance, so is the difference of the slopes; the gain is its integral
    return 1 / 2, 2


def _ridge_for_one_per_cent():
    """lambda' with E |T - c W|^2 = 1.01 E |T - W|^2 at c = 1 / (1 + lambda' / (n sigma^2)), without an expansion."""
    from scipy.optimize import brentq

    from attn_lib.gaussian import gaussian_ball
    from attn_lib.problems import PositionalSemantic
    from attn_lib.theory.cavity import target_diagonal

    problem, n = PositionalSemantic(alpha=1.5, omega=0.3), 1500
    nodes, weight = gaussian_ball(0.15, 8.0, [False, False])
    T11, T22 = target_diagonal(problem, *(np.sqrt(problem.rho) * nodes))
    T = np.array([T11, 1 - T11, 1 - T22, T22])
    W = (T @ weight)[:, None]

    def excess(c):
        return weight @ ((T - c * W) ** 2 - 1.01 * (T - W) ** 2).sum(0)

    c = brentq(excess, 0.9, 1.0)
    return n * problem.rho * (1 / c - 1)


def _at_largest_omega():
    """There, on the semantic branch at infinite alpha: G / (2 K), and the slopes in omega of both errors."""
    from scipy.optimize import brentq

    from attn_lib.gaussian import gaussian_ball
    from attn_lib.problems import PositionalSemantic
    from attn_lib.proximal import attention_diagonal, loss
    from attn_lib.theory.cavity import target_diagonal
    from attn_lib.theory.population import population_minimum
    from attn_lib.theory.positional_semantic import linear_baseline

    def at(omega):
        return PositionalSemantic(alpha=1.0, omega=omega)

    def errors(omega):
        return population_minimum(at(omega), "semantic").test_error, linear_baseline(at(omega)).test_error

    omega = brentq(lambda x: np.subtract(*errors(x)), 0.3, 0.7, xtol=1e-6)
    p = at(omega)
    nodes, weight = gaussian_ball(0.15, 7.0, [False, False])
    h_star = np.sqrt(p.rho) * nodes
    h = population_minimum(p, "semantic").overlap * h_star
    T, S_star = np.array(target_diagonal(p, *h_star)), np.array(attention_diagonal(*h_star))

    def ell(du=0.0, dv=0.0):
        return loss(h[0] + du, h[1] + dv, *T, p.sigma)

    step = 1e-3
    shifted = [[ell(**{axis: s * step}) for s in (-1, 1)] for axis in ("du", "dv")]
    G = weight @ sum(((right - left) / (2 * step)) ** 2 for left, right in shifted)
    K = weight @ sum((left - 2 * ell() + right) / step**2 for left, right in shifted)
    # at fixed Q (the minimum does not feel its change): d/d omega of sigma^2 |T - S|^2
    A = np.diagonal(p.A)[:, None]
    semantic = weight @ (2 * p.rho * (T - attention_diagonal(*h)) * (A - S_star)).sum(0)
    linear = -2 * errors(omega)[1] / (1 - omega)  # proportional to (1 - omega)^2
    return G / (2 * K), semantic, linear


def _divergence():
    decay, semantic, linear = _at_largest_omega()
    return decay / (semantic - linear)


def _divergence_at_fixed_baseline(_):
    decay, semantic, _ = _at_largest_omega()
    return decay / semantic


def _first_positions():
    # a spike of strength l = 2 / sigma^2 leaves the bulk at alpha l^2 = 1; the rate is the outlier minus lam
    sigma, tau, lam = 0.5, 0.1, 0.01
    strength = 2 / sigma**2
    return strength**-2, 2 * tau * sigma**4 * (1 + strength) * (1 + 1 / strength) - lam


ANSWERS = {
    "pt-pitchfork": Answer(
        asked="the exponents (a, b) of theta and of the gain in train loss, as the distance vanishes",
        value=_pitchfork,
        atol=0.03,  # extrapolated local exponents are less than 0.01 off
        mistakes=(
            (lambda a, b: (2 * a, b), "the first number is the exponent of the square of theta"),
            (lambda a, b: (a, b / 2), "the second number is the exponent of the difference of the two slopes"),
        ),
    ),
    "lb-ridge": Answer(
        asked="the penalty lambda' that costs one per cent of eps_lin, at omega = 0.3, alpha = 1.5, d = 1000",
        value=_ridge_for_one_per_cent,
        rtol=0.03,  # to first order in the shrinkage the answer is 1.2 per cent lower
        mistakes=(
            (lambda right: right / 1500, "the penalty is added to a sum over all n samples, not to their mean"),
            (lambda right: right / np.sqrt(2), "a test error has the factor sigma^2 / 2"),
            (lambda right: right / 0.25, "the tokens have the variance sigma^2, so n sigma^2 is compared with lambda'"),
            (lambda right: right**2 / (1500 * 0.25), "the cost is of second order in the change of W"),
        ),
    ),
    "lb-divergence": Answer(
        asked="the constant C of alpha_l, at sigma = 0.5 and the default A",
        value=_divergence,
        rtol=0.01,
        mistakes=(
            (lambda right: 2 * right, "the coefficient of the decay is G / (2 K), not G / K"),
            (_divergence_at_fixed_baseline, "the error of the linear layer depends on omega as well"),
        ),
    ),
    "gd-mp": Answer(
        asked="the smallest alpha at which the positions are learned, and the rate gamma_m at alpha = 1",
        value=_first_positions,
        rtol=0.01,
        mistakes=(
            (lambda alpha, rate: (4 * alpha, rate), "u has the mean sqrt(2) along the positions, not 1"),
            (lambda alpha, rate: (np.sqrt(alpha), rate), "the first number is the square root of the threshold"),
            (lambda alpha, rate: (alpha, rate + 0.01), "the rate is the eigenvalue minus lambda"),
        ),
    ),
}
