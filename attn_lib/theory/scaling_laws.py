r"""Scaling laws: how the excess test error falls with the number of samples for a power-law target.

A target with eigenvalues :math:`\sqrt d\,i^{-\gamma}` is learned mode by mode. What the state evolution gives on the
list of d eigenvalues is followed over n, its local exponents

.. math:: \frac{d\log(e_{\rm test}-e_0)}{d\log n}

are compared with those of the regimes of :mod:`attn_lib.theory.scaling_regimes`, and :math:`e_0` is the error of the
best multiple of the target (:mod:`attn_lib.theory.error_decomposition`). The theory is for :math:`d\to\infty` at fixed
:math:`n/d^2`; on a list of d eigenvalues it can be solved for any n.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from attn_lib._checks import check_type
from attn_lib.problems import SingleHead
from attn_lib.theory.emergence import learning_path
from attn_lib.theory.error_decomposition import weights
from attn_lib.theory.scaling_regimes import RATES, regime

__all__ = ["RATES", "Curve", "Exponent", "fit_exponent", "learning_curve", "regime"]

_SPREAD = 0.1  # of the local exponents about their fit, above which there is no power law
_FEWEST = 4  # points


class Exponent(NamedTuple):
    """A fitted exponent of n, the largest deviation of a local exponent from it, and the prediction of the regime."""

    value: float
    spread: float
    predicted: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    r"""Solutions at one target and increasing sample size.

    Attributes
    ----------
    solutions : tuple
        Of :func:`attn_lib.theory.single_head.solve`.
    irreducible, s_star : float
        :math:`e_0` and :math:`s_*`.
    """

    solutions: tuple
    irreducible: float
    s_star: float

    @property
    def alpha(self):
        """Sample complexities :math:`n/d^2`."""
        return np.array([s.problem.alpha for s in self.solutions])

    @property
    def lam(self):
        """Weight decays."""
        return np.array([s.problem.lam for s in self.solutions])

    @property
    def n_eff(self):
        """:math:`n/d`."""
        return self.alpha * self.solutions[0].problem.target.d

    @property
    def excess(self):
        r""":math:`e_{\rm test}-e_0`."""
        return np.array([s.test_error for s in self.solutions]) - self.irreducible

    @property
    def distance(self):
        r""":math:`\mathrm{tr}(S-s_*S_0)^2`."""
        m, q, _ = np.array([s.overlaps for s in self.solutions]).T
        return q - 2 * self.s_star * m + self.s_star**2 * self.solutions[0].problem.target.second_moment

    @property
    def local_exponents(self):
        """Between neighbours, of the excess; one fewer than points."""
        return np.diff(np.log(self.excess)) / np.diff(np.log(self.alpha))

    @cached_property
    def regimes(self):
        """The :class:`~attn_lib.theory.scaling_regimes.Regime` of every point."""
        return tuple(regime(s.problem) for s in self.solutions)


def learning_curve(problem, alphas, *, power=0.0, accuracy=1e-3):
    r"""Excess test error against the sample size, from many samples to few, each solution the start of the next.

    .. math:: \lambda(\alpha) = \lambda\,(\alpha/\alpha_{\rm problem})^{\rm power}

    Parameters
    ----------
    problem : SingleHead
        With a PowerLaw or FiniteRank target.
    alphas : array
        Sample complexities n/d^2, ascending, > 0.
    power : float
        0 for a fixed weight decay; at 1/2 the threshold epsilon falls as the noise delta does.
    accuracy : float
        As in :func:`~attn_lib.theory.single_head.solve`.

    Returns
    -------
    Curve

    Raises
    ------
    ValueError
        Another problem or target; alphas, power or accuracy out of range.
    ConvergenceError
        A point without solution, see :func:`attn_lib.theory.single_head.solve`.

    Accuracy
    --------
    Of the test error, ``accuracy`` at most. What it makes of the excess is ``accuracy`` times e_test/(e_test - e_0):
    ask for more where the excess is small. A point costs about 0.2 s for d up to 10^4, a few seconds at 10^6.

    Examples
    --------
    >>> from attn_lib.problems import PowerLaw, SingleHead
    >>> problem = SingleHead(alpha=1.0, lam=0.4, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=1.5, d=1000))
    >>> curve = learning_curve(problem, np.geomspace(0.01, 1, 5), power=0.5)
    >>> fit = fit_exponent(curve)
    >>> round(fit.value, 2), round(fit.spread, 2), round(fit.predicted, 3)
    (-0.67, 0.01, -0.667)
    """
    check_type("problem", problem, SingleHead)
    if not hasattr(problem.target, "atoms"):
        raise ValueError(f"target = {problem.target!r}: must be a PowerLaw or a FiniteRank")
    found = learning_path(problem, alphas, power=power, accuracy=accuracy)
    best = weights(problem)
    return Curve(solutions=tuple(found), irreducible=best.irreducible, s_star=best.s_star)


def fit_exponent(curve):
    r"""The exponent of the excess in n, within one regime.

    Parameters
    ----------
    curve : Curve
        At least four points with a PowerLaw target.

    Returns
    -------
    Exponent
        The least-squares slope of log(excess) in log(n), and the prediction.

    Raises
    ------
    ValueError
        Too few points; points in different regimes; a lambda that changes within a regime where the error depends on
        it; or local exponents more than 0.1 away from the fit, so that no power law is there to be fitted.

    Accuracy
    --------
    The solutions are exact up to their ``accuracy``: what limits an exponent is that it still drifts, and ``spread``
    measures this drift within the range of n. A prediction may be further away.

    Examples
    --------
    >>> from attn_lib.problems import PowerLaw, SingleHead
    >>> problem = SingleHead(alpha=1.0, lam=0.1, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=1.0, d=200))
    >>> fit_exponent(learning_curve(problem, [0.001, 0.01, 1, 100]))
    Traceback (most recent call last):
    ...
    ValueError: curve in different regimes (plateau, partial shrinkage, variance): an exponent belongs to one of them
    """
    check_type("curve", curve, Curve)
    if len(curve.solutions) < _FEWEST:
        raise ValueError(f"curve of {len(curve.solutions)} points: must have at least {_FEWEST}")
    names = list(dict.fromkeys(r.name for r in curve.regimes))
    if len(names) > 1:
        raise ValueError(f"curve in different regimes ({', '.join(names)}): an exponent belongs to one of them")
    if "shrinkage" in names[0] and np.ptp(curve.lam) > 0:
        raise ValueError(f"curve in {names[0]} with lam from {curve.lam.min()} to {curve.lam.max()}: must be constant")
    value = float(np.polyfit(np.log(curve.alpha), np.log(curve.excess), 1)[0])
    spread = float(np.abs(curve.local_exponents - value).max())
    if not spread <= _SPREAD:
        ends = f"{curve.local_exponents.min():.2f} to {curve.local_exponents.max():.2f}"
        raise ValueError(f"curve with local exponents from {ends}: must be within {_SPREAD} of one power law")
    return Exponent(value, spread, curve.regimes[0].exponent)
