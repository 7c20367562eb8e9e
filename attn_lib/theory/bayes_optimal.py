r"""The Bayes-optimal error for a Wishart target: a lower bound for every way of training (arXiv 2506.01582).

Labels of :math:`\mathrm{softmax}(\beta_0(z(S_0)+\xi))` determine :math:`z(S_0)+\xi` up to one constant. Learning from
them is linear measurement of S0 with Gaussian noise, N alpha d^2/2 times, :math:`N=T^2+T-2`, and what the posterior
knows is what it would know from the matrix

.. math:: S_0 + \hat q^{-1/2}Z, \qquad \hat q = \frac{N\alpha}{Q_0-q+\Delta/2},

Z a GOE matrix with :math:`\mathrm{tr}\,Z^2=1`. The posterior mean has there the self-overlap, with :math:`t=1/\hat q`
and :math:`\mu_t` the law of :math:`S_0+\sqrt tZ`,

.. math:: q = Q_0 - t\,D(t), \qquad D(t) = 1-\frac{4\pi^2t}3\int\mu_t(x)^3dx .

Both together are :math:`N\alpha = D(t)+\Delta/(2t)`: a curve with parameter t.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from attn_lib._checks import check_number
from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.spectra.free_convolution import FreeConvolution
from attn_lib.theory.single_head import test_error
from attn_lib.theory.thresholds import constraints

__all__ = ["BayesOptimal", "alpha_bayes", "posterior_freedom", "solve_bayes_optimal"]


@dataclass(frozen=True, kw_only=True)
class BayesOptimal:
    r"""What the posterior knows.

    Attributes
    ----------
    alpha : float
    q : float
        Overlap of the posterior mean of S with itself and with S0.
    matrix_error : float
        Q0 - q, the mean of tr(S - S0)^2 for the posterior mean S.
    test_error : float
        :math:`E\sum_{ab}(y-\hat y)_{ab}^2` on a fresh sample with noisy label y, for the posterior mean
        :math:`\hat y` of y, the least of all estimators.
    """

    alpha: float
    q: float
    matrix_error: float
    test_error: float


def alpha_bayes(kappa0, n_tokens=2):
    r"""The n/d^2 from which a Wishart target without label noise is known exactly.

    .. math:: N\alpha = 2\kappa_0-\kappa_0^2, \qquad \kappa_0\le1

    This counts: :math:`(2\kappa_0-\kappa_0^2)\,d^2/2` numbers specify a symmetric matrix of rank :math:`\kappa_0d`.

    Parameters
    ----------
    kappa0 : float
        Rank of the target divided by d, > 0; from 1 on the threshold is 1/N.
    n_tokens : int
        T >= 2.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        Naming the argument, its value and the allowed range.

    Source
    ------
    arXiv 2506.01582, for the attention-indexed model; the limit t = 0 of the module's equations.

    Examples
    --------
    >>> alpha_bayes(0.5)
    0.1875
    """
    check_number("kappa0", kappa0, "a finite number > 0", lambda v: v > 0)
    return (1 - max(1 - kappa0, 0.0) ** 2) / constraints(n_tokens)


def posterior_freedom(kappa0, t):
    r"""Mean squared error of the posterior mean of S0, given :math:`S_0+\sqrt tZ`, divided by t.

    .. math:: D(t) = 1-\frac{4\pi^2t}3\int\mu_t(x)^3dx

    It is also the number of measurements, divided by :math:`d^2/2`, that are spent on S0 rather than on the noise: it
    falls from :math:`2\kappa_0-\kappa_0^2` at t = 0 to 0.

    Parameters
    ----------
    kappa0 : float
        > 0.
    t : float
        Variance of the noise, > 0.

    Returns
    -------
    float

    Raises
    ------
    ConvergenceError
        D is not found to 1e-7.

    Accuracy
    --------
    1e-7, mostly far better: midpoints in the angle :math:`\theta` of :math:`x=c-r\cos\theta` on each component of the
    support, doubled until they settle. At the edges, where the density is a square root, the integrand is smooth;
    slow only where two components are about to merge.

    Source
    ------
    Bun, Allez, Bouchaud and Potters, IEEE Trans. Inf. Theory 62 (2016) 7475, for the optimal rotation-invariant
    denoiser :math:`x\to x-2th(x)`, h the Hilbert transform of :math:`\mu_t`; the integral follows from
    :math:`\int\mu_th^2=\tfrac{\pi^2}3\int\mu_t^3`.

    Examples
    --------
    >>> round(posterior_freedom(0.5, 1e-6), 3)
    0.75
    """
    check_number("kappa0", kappa0, "a finite number > 0", lambda v: v > 0)
    check_number("t", t, "a finite number > 0", lambda v: v > 0)
    noisy = FreeConvolution(MarchenkoPastur(kappa0=kappa0), t**0.5)
    unit = 4 * np.pi**2 * t / 3
    tolerance = 1e-7 / unit
    cubes = sum(_integral_of_cube(noisy.density, part.lower, part.upper, tolerance) for part in noisy.components)
    return float(1 - unit * cubes)


def solve_bayes_optimal(kappa0, *, alpha, Delta, n_tokens=2, beta0=1.0):
    r"""The Bayes-optimal error, of which the student's form and training play no role.

    With two replicas :math:`z, z'` of the noisy field, of variance :math:`Q'` and covariance q, the error of the
    posterior mean of a label is :math:`\tfrac12E\sum_{ab}(y(z)-y(z'))_{ab}^2`.

    Parameters
    ----------
    kappa0 : float
        Rank of the Wishart target divided by d, > 0.
    alpha : float
        Sample complexity n/d^2, > 0.
    Delta : float
        Variance of the label noise, >= 0. Without noise all errors are 0 from :func:`alpha_bayes` on.
    n_tokens : int
        T >= 2.
    beta0 : float
        Inverse temperature of the target, > 0.

    Returns
    -------
    BayesOptimal

    Raises
    ------
    ValueError
        Naming the argument, its value and the allowed range.
    ConvergenceError
        From :func:`posterior_freedom`.

    Accuracy
    --------
    1e-6 of q; the test error as :func:`attn_lib.theory.single_head.test_error`.

    Source
    ------
    arXiv 2506.01582, softmax with T tokens and no noise; with noise, and the error of the posterior mean of the label,
    derived in the chapter on interpolation.

    Examples
    --------
    >>> round(solve_bayes_optimal(0.5, alpha=0.1, Delta=0.0).q, 3)
    1.108
    """
    target = MarchenkoPastur(kappa0=kappa0)
    problem = SingleHead(alpha=alpha, lam=1.0, Delta=Delta, kappa=1.0, target=target, n_tokens=n_tokens)
    problem = replace(problem, beta=beta0, beta0=beta0)
    wanted, matrix_error = constraints(n_tokens) * alpha, 0.0
    if Delta > 0 or alpha < alpha_bayes(kappa0, n_tokens):

        def excess(log_t):
            t = np.exp(log_t)
            return posterior_freedom(kappa0, t) + Delta / (2 * t) - wanted

        low = high = 0.0
        while excess(low) < 0 and low > -30:
            low -= 2.0
        while excess(high) > 0 and high < 30:
            high += 2.0
        if excess(low) < 0 or excess(high) > 0:
            raise ConvergenceError(
                f"alpha = {alpha!r}, Delta = {Delta!r}: no root", partial=(np.exp(low), np.exp(high))
            )
        t = np.exp(brentq(excess, low, high, xtol=1e-10))
        matrix_error = float(t * posterior_freedom(kappa0, t))
    q, Q_prime = target.second_moment - matrix_error, problem.noisy_second_moment
    return BayesOptimal(alpha=alpha, q=q, matrix_error=matrix_error, test_error=test_error(problem, q, Q_prime) / 2)


def _integral_of_cube(density, lower, upper, tolerance):
    """Integral of the cube of a density on an interval at whose ends it vanishes."""
    centre, radius, previous = (lower + upper) / 2, (upper - lower) / 2, np.inf
    for n in 50 * 2 ** np.arange(10):
        angle = np.pi * (np.arange(n) + 0.5) / n
        value = (density(centre - radius * np.cos(angle)) ** 3 @ np.sin(angle)) * radius * np.pi / n
        if abs(value - previous) <= tolerance:
            return value
        previous = value
    raise ConvergenceError("the integral of the cube of the density is not found", partial=value)
