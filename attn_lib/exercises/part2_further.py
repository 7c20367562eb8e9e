"""Answers to exercises of Part II: what_carries_over, lasso, errata."""

from dataclasses import replace

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, ndtr

from attn_lib.exercises.answer import Answer

__all__ = ["ANSWERS"]


def _layer(**changes):
    from attn_lib.problems import MarchenkoPastur, SingleHead

    return replace(SingleHead(alpha=1.0, lam=0.1, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5)), **changes)


def _price():
    """With the errors of the best multiples of the targets as floors, not errors at a large alpha."""
    from attn_lib.theory.error_decomposition import weights
    from attn_lib.theory.single_head import solve
    from attn_lib.theory.untied import solve_untied

    problem = _layer()
    x, w = np.polynomial.hermite_e.hermegauss(60)
    w = w / w.sum()
    u = (2 * problem.target.second_moment) ** 0.5 * x[:, None]
    labels = expit(u + problem.Delta**0.5 * x)
    floor = minimize_scalar(lambda s: 4 * w @ (expit(s * u) - labels) ** 2 @ w, bounds=(0, 1.5), method="bounded").fun
    wanted = solve(problem).test_error - weights(problem).irreducible

    def beyond(alpha):
        return solve_untied(replace(problem, alpha=alpha)).test_error - floor - wanted

    return brentq(beyond, 1.0, 4.0, xtol=1e-3)


def _logarithm():
    """Minimises over the threshold in units of the noise, not over the penalty."""
    gamma, d, Delta = 1.5, 1000, 0.5
    theta, alphas = d**0.5 * np.arange(1.0, d + 1) ** -gamma, np.geomspace(0.03, 3, 5)

    def risk(nu, a):  # of the soft threshold, in units of the noise
        inside = ndtr(a - nu) - ndtr(-a - nu)
        edges = (a - nu) * np.exp(-((a + nu) ** 2) / 2) + (a + nu) * np.exp(-((a - nu) ** 2) / 2)
        return 1 + a**2 + (nu**2 - a**2 - 1) * inside - edges / (2 * np.pi) ** 0.5

    def noise(a, alpha):
        margin = alpha - risk(0.0, a)
        if margin <= 0:
            return np.inf
        high = (Delta + theta @ theta / d) / margin
        return brentq(lambda v: alpha * v - Delta - v * risk(theta / v**0.5, a).mean(), Delta / alpha / 2, 2 * high)

    excess, samples = [], []
    for alpha in alphas:
        found = minimize_scalar(
            lambda a, alpha=alpha: min(alpha * noise(a, alpha) - Delta, 1e6), bounds=(0.01, 5), method="bounded"
        )
        r = (theta > found.x * noise(found.x, alpha) ** 0.5).sum()
        excess.append(found.fun)
        samples.append(d * alpha / (2 * np.log(d / r)))
    return tuple(np.polyfit(np.log(x), np.log(excess), 1)[0] for x in (alphas, samples))


def _ridge():
    """From the two ends of the range alone."""
    from attn_lib.theory.single_head import solve_direct

    lams, errors = (1e-4, 1e-5), []
    for lam in lams:
        problem = _layer(alpha=0.2, lam=lam, Delta=0.0)
        m, q, _ = solve_direct(problem, accuracy=1e-3).overlaps
        Q0 = problem.target.second_moment
        errors.append((Q0 - 2 * m + q) / Q0 - (1 - 4 * problem.alpha))
    return np.log(errors[0] / errors[1]) / np.log(lams[0] / lams[1])


ANSWERS = {
    "wc-price": Answer(
        asked="the alpha of cross-attention with the excess error of the tied layer at alpha = 1",
        value=_price,
        rtol=0.02,  # a floor from a large alpha in place of the limit changes it by less
        mistakes=(
            (lambda right: 2.0, "this is what the count of measurements gives; compare solutions of the two theories"),
            (lambda right: 1 / right, "this is the inverse: the tied layer is to be kept at alpha = 1"),
        ),
    ),
    "la-log": Answer(
        asked="the exponents of the least D in n_eff and in n_eff/(2 log(d/r)), fitted to five values of alpha",
        value=_logarithm,
        atol=0.01,
        mistakes=(
            (lambda plain, corrected: (plain, plain), "the second exponent must take into account that r changes"),
            (lambda plain, corrected: (-plain, -corrected), "the error falls with the samples, mind the signs"),
            (lambda plain, corrected: (corrected, plain), "this is the other order: n_eff first"),
        ),
    ),
    "e2-ridge": Answer(
        asked="the exponent of lambda in the distance of the error from its limit, lambda from 1e-5 to 1e-4",
        value=_ridge,
        rtol=0.03,  # the slope changes within the range: a fit to more points differs by less
        mistakes=(
            (lambda right: 1.0, "it is not linear in lambda in this range; solve the state evolution"),
            (lambda right: right * np.log(10), "the logarithms of error and lambda must have the same base"),
        ),
    ),
}
