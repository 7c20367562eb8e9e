r"""Where the test error of a single head comes from: noise, missed modes, learned modes, saturation.

The test error depends on the learned S through :math:`m=\mathrm{tr}SS_0` and :math:`q=\mathrm{tr}S^2` only. Write
:math:`S=sS_0+R` with :math:`\mathrm{tr}RS_0=0`, so :math:`s=m/Q_0`, :math:`R_2=\mathrm{tr}R^2=q-m^2/Q_0`, and

.. math::

    \hat e(s, R_2) = e(sQ_0, s^2Q_0+R_2), \qquad s_* = \mathrm{argmin}_s\,\hat e(s, 0), \qquad e_0 = \hat e(s_*, 0).

:math:`e_0` is the error of the best multiple of the target, which label noise leaves. What exceeds it is a function of
the distance :math:`\mathrm{tr}(S-s_*S_0)^2`, a sum over eigenvalues, and of its radial part :math:`(s-s_*)^2Q_0`:

.. math::

    \mathrm{tr}(S-s_*S_0)^2 = E_{\rm over}+E_{\rm under}+E_{\rm approx}, \qquad E_{\rm mismatch} = (s-s_*)^2Q_0, \qquad
    R_2 = E_{\rm over}+E_{\rm under}+E_{\rm approx}-E_{\rm mismatch}.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from attn_lib._checks import check_number
from attn_lib.theory.learned_modes import coupled_modes, isolated_modes
from attn_lib.theory.single_head import Solution, test_error

__all__ = ["TOLERANCE", "Decomposition", "Weights", "decompose", "slope", "weights"]

TOLERANCE = 0.05  # relative, within which the parts are said to sum to the excess

_STEP = 2e-3  # of s beta/beta0 and of R_2/Q_0 (beta/beta0)^2, for differences of fourth order


class Weights(NamedTuple):
    r"""What a distance costs near the best multiple of the target.

    ``s_star`` is that multiple, beta0/beta without label noise and less with it; ``irreducible`` is its error
    :math:`e_0`; ``c1`` = :math:`\partial\hat e/\partial R_2` and ``c2`` = :math:`\partial^2_s\hat e/(2Q_0)-c_1` there.
    """

    s_star: float
    irreducible: float
    c1: float
    c2: float


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    r"""The parts of the excess error.

    Attributes
    ----------
    over, under, approx, mismatch : float
        :math:`E_{\rm over}`, :math:`E_{\rm under}`, :math:`E_{\rm approx}`, :math:`E_{\rm mismatch}`, unweighted.
    s, R2, recovered : float
        :math:`m/Q_0` and :math:`q-m^2/Q_0` of the parts, and the fraction r of modes that count as recovered.
    c1, c2, s_star, irreducible : float
        As in :class:`Weights`.
    radial, c1_local : float
        :math:`\hat e(s,0)-e_0` and :math:`\partial\hat e/\partial R_2` at (s, 0).
    distance, excess : float
        :math:`q-2s_*m+s_*^2Q_0` and :math:`e-e_0` of the solution itself, for comparison.
    """

    over: float
    under: float
    approx: float
    mismatch: float
    s: float
    R2: float
    recovered: float
    c1: float
    c2: float
    s_star: float
    irreducible: float
    radial: float
    c1_local: float
    distance: float
    excess: float

    @property
    def contributions(self):
        r"""The parts as they enter ``total``.

        The first three are multiplied by :math:`\partial_{R_2}\hat e(s,0)`; the mismatch is the exact radial error
        without what was counted as :math:`R_2`. It can be negative.
        """
        mismatch = self.radial - self.c1_local * self.mismatch
        distances = {"over": self.over, "under": self.under, "approx": self.approx}
        return {name: self.c1_local * value for name, value in distances.items()} | {"mismatch": mismatch}

    @property
    def total(self):
        r"""Sum of the contributions, :math:`\hat e(s,0)-e_0+\partial_{R_2}\hat e(s,0)R_2`: linear in R_2 only."""
        return sum(self.contributions.values())

    @property
    def quadratic_total(self):
        r""":math:`c_1(E_{\rm over}+E_{\rm under}+E_{\rm approx})+c_2E_{\rm mismatch}`, for small distances."""
        return self.c1 * (self.over + self.under + self.approx) + self.c2 * self.mismatch

    @property
    def deviation(self):
        """Of ``total`` from the excess, relative."""
        return self.total / self.excess - 1

    @property
    def distance_deviation(self):
        """Of over + under + approx from the distance of the solution, relative."""
        return (self.over + self.under + self.approx) / self.distance - 1

    @property
    def holds(self):
        """Whether both deviations are within ``TOLERANCE``, so that the agreement of one is no accident."""
        parts = self.over + self.under + self.approx
        ends = ((self.total, self.excess), (parts, self.distance))
        return all(abs(found - true) <= TOLERANCE * abs(true) for found, true in ends)


def decompose(solution, *, isolated=True):
    r"""Decompose the excess test error of a solution by the spectrum that was learned.

    R are the recovered modes of :mod:`attn_lib.theory.learned_modes`, a fraction r of all. Treated as isolated outliers
    of a semicircle of all others, with :math:`\bar\delta=\delta\sqrt{1-r}`, they give

    .. math::

        E_{\rm over} &= (1-r)\,\eta^2\bar\delta^2\int_{\epsilon/\bar\delta}^2(x-\epsilon/\bar\delta)^2\rho_{\rm sc}, \\
        E_{\rm under} &= \frac{s_*^2}d\sum_{i\notin R}s_i^2, \\
        E_{\rm approx} &= \frac1d\sum_{i\in R}\Big[l_i^2-2l_is_*s_i\big(1-\delta^2/s_i^2\big)+s_*^2s_i^2\Big].

    Without ``isolated`` no level is treated by itself. With :math:`l(x)=\eta(x-\epsilon)`, :math:`\mu_\delta(x>x_r)=r`
    and :math:`\xi(x)` the mean of :math:`v^\top S_0v` over noisy eigenvectors v at x,

    .. math::

        E_{\rm over} &= \int_\epsilon^{x_r}(l^2-2s_*l\xi)\,\mu_\delta, \\
        E_{\rm approx} &= \int_{x_r}(l^2-2s_*l\xi)\,\mu_\delta + \frac{s_*^2}d\sum_{i\in R}s_i^2 .

    These sum to the distance exactly; :math:`E_{\rm over}` is negative where the bulk holds more of the target than of
    noise.

    Parameters
    ----------
    solution : Solution
        Of :func:`attn_lib.theory.single_head.solve`. Sums over modes are integrals where the target's law has a
        density.
    isolated : bool

    Returns
    -------
    Decomposition

    Raises
    ------
    ValueError
        A solution without threshold (of ``solve_direct``) or with S = 0.

    Accuracy
    --------
    Isolated: asymptotic in r -> 0 and well separated levels; see ``holds``. Recovered levels are counted as if all
    others were noise: at r = 1 and small delta the distance is twice what it should be.
    Else: that of the solution in ``distance``, and of the expansion in R_2 in ``total``.

    Source
    ------
    arXiv 2509.24914 has these four parts; this grouping and these weights are ours.

    Examples
    --------
    >>> from attn_lib.problems import PowerLaw, SingleHead
    >>> from attn_lib.theory.single_head import solve
    >>> target = PowerLaw(gamma=1.5, d=400)
    >>> solution = solve(SingleHead(alpha=0.1, lam=0.1, Delta=0.5, kappa=1.0, target=target), accuracy=1e-2)
    >>> parts = decompose(solution)
    >>> parts.holds, max(parts.contributions, key=parts.contributions.get)
    (True, 'approx')
    """
    if not isinstance(solution, Solution) or solution.epsilon is None or solution.rank == 0:
        raise ValueError(f"solution of type {type(solution).__name__}: must be one of solve, with rank > 0")
    problem, overlaps = solution.problem, solution.overlaps
    Q0, found = problem.target.second_moment, weights(problem)
    s_star, e0 = found.s_star, found.irreducible
    modes = (isolated_modes if isolated else coupled_modes)(solution)
    over, approx = (part.q - 2 * s_star * part.m for part in (modes.bulk, modes.learned))
    s, q = (modes.learned.m + modes.bulk.m) / Q0, modes.learned.q + modes.bulk.q
    return Decomposition(
        over=over,
        under=s_star**2 * max(Q0 - modes.square, 0.0),
        approx=approx + s_star**2 * modes.square,
        mismatch=(s - s_star) ** 2 * Q0,
        s=s,
        R2=q - s**2 * Q0,
        recovered=modes.recovered,
        radial=test_error(problem, s * Q0, s**2 * Q0) - e0,
        c1_local=slope(problem, s),
        distance=overlaps.q - 2 * s_star * overlaps.m + s_star**2 * Q0,
        excess=solution.test_error - e0,
        **found._asdict(),
    )


def weights(problem):
    """The best multiple of the target, its error, and the weights of small distances from it.

    Parameters
    ----------
    problem : SingleHead
        Of which target, Delta, n_tokens, beta and beta0 are used.

    Returns
    -------
    Weights

    Accuracy
    --------
    1e-7 for two tokens, by differences of fourth order of the test error; 1e-2 for more.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> target = MarchenkoPastur(kappa0=0.5)
    >>> found = weights(SingleHead(alpha=1.0, lam=0.01, Delta=0.0, kappa=1.0, target=target))
    >>> round(found.s_star, 6), round(found.irreducible, 12)
    (1.0, 0.0)
    """
    Q0, beta_ratio = problem.target.second_moment, problem.beta0 / problem.beta

    def error(s):
        return test_error(problem, s * Q0, s**2 * Q0)

    # noise in the labels can only shrink the best multiple
    s = float(minimize_scalar(error, bounds=(0, 1.5 * beta_ratio), method="bounded", options={"xatol": 1e-10}).x)
    step = _STEP * beta_ratio
    curvature = np.dot([-1, 16, -30, 16, -1], [error(s + k * step) for k in (-2, -1, 0, 1, 2)]) / (12 * step**2)
    c1 = slope(problem, s)
    return Weights(s_star=s, irreducible=error(s), c1=c1, c2=float(curvature) / (2 * Q0) - c1)


def slope(problem, s):
    r"""What a little noise costs: :math:`\partial\hat e/\partial R_2` at (s, 0).

    Parameters
    ----------
    problem : SingleHead
        As in :func:`weights`.
    s : float
        Of the student sS_0.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        s is not a finite number.
    """
    check_number("s", s, "a finite number", lambda v: True)
    Q0, step = problem.target.second_moment, _STEP * (problem.beta0 / problem.beta) ** 2
    errors = [test_error(problem, s * Q0, (s**2 + k * step) * Q0) for k in range(5)]  # R_2 cannot be negative
    return float(np.dot([-25, 48, -36, 16, -3], errors)) / (12 * step * Q0)
