r"""The test error as a function of the overlaps, and its smallest values: what attention can reach with any data.

Write :math:`Q=\kappa Q^\star+m 1_d+b\,r` with r of length :math:`\sqrt d` orthogonal to both. Then
:math:`\theta=\rho\kappa,\ q=\rho(\kappa^2+m^2+b^2)` and the fields of a fresh sample are

.. math:: h_\ell = \kappa h^\star_\ell + m s_\ell + \sqrt\rho\,\sqrt{m^2+b^2}\,\xi_\ell, \qquad \xi\sim N(0,I_2).

The noise in the m direction has no choice: the Q that reads positions also reads the tokens along 1_d.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from attn_lib._checks import check_number
from attn_lib.gaussian import gaussian_ball
from attn_lib.proximal import loss
from attn_lib.theory.cavity import target_diagonal

__all__ = ["PopulationMinimum", "population_error", "population_minimum"]


def population_error(problem, *, kappa=0.0, m=0.0, b=0.0, step=0.5):
    r"""Test error :math:`E|y-f_Q(x)|^2/(2d)` of any Q in the limit of large d.

    .. math:: \epsilon_g = \tfrac{\sigma^2}{2}E|T(h^\star)-S(h)|_F^2

    Parameters
    ----------
    problem : PositionalSemantic
        Its alpha and lam do not matter.
    kappa, m, b : float
        Components of Q along Q*, 1_d and orthogonal to both.
    step : float
        Of the quadrature, in standard deviations.

    Returns
    -------
    float

    Accuracy
    --------
    About 1e-6 relative up to sigma = 0.7; the change from halving the step is a fair estimate.

    Source
    ------
    arXiv 2402.03902, the test error in terms of the order parameters.

    Examples
    --------
    At omega = 0 the target is the layer itself:

    >>> from attn_lib.problems import PositionalSemantic
    >>> round(population_error(PositionalSemantic(alpha=1, omega=0), kappa=1), 12)
    0.0
    """
    for name, value in (("kappa", kappa), ("m", m), ("b", b)):
        check_number(name, value, "a number in [-1e6, 1e6]", lambda v: abs(v) <= 1e6)
    check_number("step", step, "a number in (0, 2]", lambda v: 0 < v <= 2)
    noisy = bool(m or b)  # without noise in the fields two dimensions are enough
    nodes, weight = gaussian_ball(step, 6.0, [False] * (4 if noisy else 2))
    h_star = np.sqrt(problem.rho) * nodes[:2]
    h = kappa * h_star
    if noisy:
        h = h + np.sqrt(problem.rho * (m**2 + b**2)) * nodes[2:]
        h[0] += np.sqrt(2) * m
    return float((weight * loss(*h, *target_diagonal(problem, *h_star), problem.sigma)).sum() / weight.sum())


class PopulationMinimum(NamedTuple):
    """Smallest test error on one branch, and the component of Q along its direction there."""

    test_error: float
    overlap: float


def population_minimum(problem, start):
    """Smallest test error of a purely semantic or purely positional layer, reached with infinitely many samples.

    Parameters
    ----------
    problem : PositionalSemantic
    start : {"semantic", "positional"}
        Q along Q* or along 1_d.

    Returns
    -------
    PopulationMinimum
        The overlap is kappa = Q.Q*/d or m.

    Raises
    ------
    ValueError
        Unknown start.

    Accuracy
    --------
    That of :func:`population_error`.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> round(population_minimum(PositionalSemantic(alpha=1, omega=0.3), "semantic").overlap, 3)
    0.914
    """
    names = {"semantic": "kappa", "positional": "m"}
    if start not in names:
        raise ValueError(f"start = {start!r}: must be one of {tuple(names)}")
    found = minimize_scalar(
        lambda size: population_error(problem, **{names[start]: size}), bounds=(0, 3), options={"xatol": 1e-7}
    )
    return PopulationMinimum(float(found.fun), float(found.x))
