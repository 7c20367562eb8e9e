"""Where theory and simulation meet: standard errors, z-scores, crossings and power laws, nothing about attention."""

from typing import NamedTuple

import numpy as np

__all__ = ["Estimate", "crossing", "estimate", "power_law", "z_score"]


class Estimate(NamedTuple):
    """A measured number and its standard error."""

    value: float
    error: float


def estimate(samples):
    """Mean over independent runs with its standard error.

    Parameters
    ----------
    samples : array, shape (n,)
        One number per run, n >= 2.

    Returns
    -------
    Estimate

    Raises
    ------
    ValueError
        Fewer than two samples: no error could be given.

    Examples
    --------
    >>> estimate([1.0, 2.0, 3.0])
    Estimate(value=2.0, error=0.5773502691896258)
    """
    samples = np.asarray(samples, dtype=float)
    if samples.ndim != 1 or samples.size < 2:
        raise ValueError(f"samples of shape {samples.shape}: must be (n,) with n >= 2")
    return Estimate(float(samples.mean()), float(samples.std(ddof=1) / np.sqrt(samples.size)))


def z_score(measured, theory):
    """Distance of a measured estimate from the theory in standard errors.

    Parameters
    ----------
    measured : Estimate
    theory : float

    Returns
    -------
    float
    """
    return (measured.value - theory) / measured.error


def crossing(x, y, errors):
    """Zero of a straight line fitted to noisy points.

    Parameters
    ----------
    x, y, errors : array, shape (n,)
        Points and the independent standard errors of y, n >= 3.

    Returns
    -------
    Estimate
        The x at which the weighted least-squares line vanishes, its error by linear propagation.

    Raises
    ------
    ValueError
        Fewer than three points, or a line that has no zero within the range of x.

    Accuracy
    --------
    As good as the straight line: keep the range of x short.

    Examples
    --------
    >>> crossing([0, 1, 2], [-1, 0, 1], [0.1, 0.1, 0.1]).value
    1.0
    """
    x, y, errors = (np.asarray(a, dtype=float) for a in (x, y, errors))
    if x.size < 3:
        raise ValueError(f"{x.size} points: at least 3 are needed")
    centre = x.mean()
    (slope, level), covariance = np.polyfit(x - centre, y, 1, w=1 / errors, cov="unscaled")
    zero = -level / slope
    if not x.min() <= zero + centre <= x.max():
        raise ValueError(f"zero at {zero + centre:.4g}: must lie between {x.min():.4g} and {x.max():.4g}")
    gradient = np.array([-zero / slope, -1 / slope])
    return Estimate(float(zero + centre), float(np.sqrt(gradient @ covariance @ gradient)))


def power_law(x, y, errors):
    """Exponent of y = c x^a from a weighted fit in logarithms.

    Parameters
    ----------
    x, y, errors : array, shape (n,)
        Positive points and the standard errors of y, n >= 3.

    Returns
    -------
    Estimate
        The exponent a; its error counts the given errors, not deviations from the power law.

    Raises
    ------
    ValueError
        Fewer than three points, or one that is not positive.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 4.0])
    >>> round(power_law(x, 3 / np.sqrt(x), 0.01 / x).value, 12)
    -0.5
    """
    x, y, errors = (np.asarray(a, dtype=float) for a in (x, y, errors))
    if x.size < 3:
        raise ValueError(f"{x.size} points: at least 3 are needed")
    if not ((x > 0).all() and (y > 0).all()):
        raise ValueError(f"x = {x}, y = {y}: all must be > 0")
    (slope, _), covariance = np.polyfit(np.log(x), np.log(y), 1, w=y / errors, cov="unscaled")
    return Estimate(float(slope), float(np.sqrt(covariance[0, 0])))
