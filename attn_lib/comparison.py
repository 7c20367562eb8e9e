"""Theory beside simulation: standard errors, z-scores, crossings, power laws, limits. Nothing about attention."""

from typing import NamedTuple

import numpy as np

__all__ = ["Estimate", "Extrapolation", "crossing", "estimate", "extrapolate", "power_law", "z_score"]


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


class Extrapolation(NamedTuple):
    """Fit of y = limit + slope/d: both estimates, and the sum of squared residuals in units of the errors.

    ``degrees`` (of freedom) is the number of points minus 2; a chi_square far above it says that the form is wrong.
    """

    limit: Estimate
    slope: Estimate
    chi_square: float
    degrees: int


def extrapolate(d, y, errors):
    """Limit of large d of a quantity with a bias of order 1/d, by weighted least squares of y = a + b/d.

    Parameters
    ----------
    d, y, errors : array, shape (n,)
        Sizes > 0, at least three of them different, the quantity and its independent standard errors.

    Returns
    -------
    Extrapolation
        The errors of a and b count the given errors, not deviations from the form.

    Raises
    ------
    ValueError
        Fewer than three different sizes, or sizes or errors that are not positive.

    Examples
    --------
    >>> d = np.array([50, 100, 200, 400])
    >>> fit = extrapolate(d, 2 + 30 / d, np.full(4, 0.01))
    >>> round(fit.limit.value, 9), round(fit.slope.value, 9), round(fit.chi_square, 9)
    (2.0, 30.0, 0.0)
    """
    d, y, errors = (np.asarray(a, dtype=float) for a in (d, y, errors))
    if not (d.ndim == 1 and d.shape == y.shape == errors.shape and np.isfinite([d, y, errors]).all()):
        raise ValueError(f"d = {d}, y = {y}, errors = {errors}: must be finite numbers, as many of each")
    if not ((d > 0).all() and (errors > 0).all()):
        raise ValueError(f"d = {d}, errors = {errors}: all must be > 0")
    if np.unique(d).size < 3:
        raise ValueError(f"d = {d}: at least 3 different sizes are needed")
    (slope, limit), covariance = np.polyfit(1 / d, y, 1, w=1 / errors, cov="unscaled")
    residuals = (y - limit - slope / d) / errors
    error = np.sqrt(np.diag(covariance))
    return Extrapolation(
        limit=Estimate(float(limit), float(error[1])),
        slope=Estimate(float(slope), float(error[0])),
        chi_square=float(residuals @ residuals),
        degrees=d.size - 2,
    )
