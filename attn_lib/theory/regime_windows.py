r"""Exponents measured in windows of noise and threshold: the same rule for attention and for the LASSO.

A regime of :mod:`attn_lib.theory.scaling_regimes` is an inequality between scales. Its exponent is seen well inside it
only, at a fixed distance from the ends :math:`s_1=\sqrt d` and :math:`s_d` of the spectrum:

=====================  ==============================================================
sequential recovery    :math:`4s_d\le\epsilon\le s_1/10`
partial shrinkage      :math:`4s_d\le\epsilon\le s_1/10`, :math:`\epsilon\ge5\delta`
full shrinkage         :math:`\epsilon\le s_d/4`, :math:`\epsilon\ge5\delta`
variance               :math:`\delta\le s_d/4`, :math:`\epsilon\le\delta/10`
=====================  ==============================================================
"""

import numpy as np

from attn_lib._checks import check_integer, check_number
from attn_lib.theory.scaling_laws import Exponent
from attn_lib.theory.scaling_regimes import RATES

__all__ = ["WINDOWS", "universal_penalty", "window_exponent"]

WINDOWS = {
    "sequential recovery": lambda s, delta, epsilon: (epsilon >= 4 * s.lower) & (epsilon <= s.upper / 10),
    "partial shrinkage": lambda s, delta, epsilon: (
        (epsilon >= 4 * s.lower) & (epsilon <= s.upper / 10) & (epsilon >= 5 * delta)
    ),
    "full shrinkage": lambda s, delta, epsilon: (epsilon <= s.lower / 4) & (epsilon >= 5 * delta),
    "variance": lambda s, delta, epsilon: (delta <= s.lower / 4) & (epsilon <= delta / 10),
}
"""Functions of target, delta and epsilon that tell which points lie inside, keyed by the name of the regime."""

_FEWEST = 3  # points


def universal_penalty(alpha, Delta, d):
    r"""The penalty of a LASSO at which the threshold is that of the largest of d noises, for many samples.

    .. math:: \epsilon = \delta\sqrt{2\log d}, \quad \delta^2 = \Delta/\alpha, \qquad
        \lambda = 2\alpha\epsilon = 2\sqrt{2\alpha\Delta\log d}

    Parameters
    ----------
    alpha, Delta : float
        > 0.
    d : int
        >= 2.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        Naming the argument, its value and the allowed range.

    Source
    ------
    Donoho and Johnstone, Biometrika 81 (1994) 425.

    Examples
    --------
    >>> round(universal_penalty(0.5, 0.5, 1000), 3)
    3.717
    """
    check_number("alpha", alpha, "a finite number > 0", lambda v: v > 0)
    check_number("Delta", Delta, "a finite number > 0", lambda v: v > 0)
    check_integer("d", d, 2)
    return float(2 * np.sqrt(2 * alpha * Delta * np.log(d)))


def window_exponent(regime, target, *, alpha, y, delta, epsilon):
    """Slope of log(y) in log(alpha) over the points inside a window.

    Parameters
    ----------
    regime : str
        A key of WINDOWS.
    target : PowerLaw
    alpha, y, delta, epsilon : array, shape (n,)
        Sample complexity > 0, what falls with it > 0, noise and threshold.

    Returns
    -------
    Exponent or None
        None with fewer than three points inside.

    Raises
    ------
    ValueError
        An unknown regime.

    Examples
    --------
    >>> from attn_lib.problems import PowerLaw
    >>> alpha = np.geomspace(0.01, 1, 9)
    >>> target = PowerLaw(gamma=1.0, d=1000)
    >>> y = alpha**-0.5
    >>> found = window_exponent("sequential recovery", target, alpha=alpha, y=y, delta=0.1, epsilon=y)
    >>> round(found.value, 9), found.predicted
    (-0.5, -0.5)
    """
    if regime not in WINDOWS:
        raise ValueError(f"regime = {regime!r}: must be one of {tuple(WINDOWS)}")
    alpha, y, delta, epsilon = (np.asarray(a, dtype=float) for a in (alpha, y, delta, epsilon))
    inside = WINDOWS[regime](target, delta, epsilon)
    if inside.sum() < _FEWEST:
        return None
    x, y = np.log(alpha[inside]), np.log(y[inside])
    slope = np.polyfit(x, y, 1)[0]
    return Exponent(float(slope), float(np.abs(np.diff(y) / np.diff(x) - slope).max()), RATES[regime](target.gamma))
