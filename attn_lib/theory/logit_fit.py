r"""State evolution of least squares in the logits of the labels: what is left above interpolation, and of the target.

The weights minimise, with the noisy fields of the target as the labels tell them,

.. math:: \sum_\mu \min_c \tfrac12\big|z^\mu(S) - z^\mu(S_0) - \xi^\mu - c\big|_F^2 + \lambda|W|^2 .

The loss is the square of :math:`N/2` numbers per sample, :math:`N=T^2+T-2`, so the channel is elementary at every
:math:`\lambda`: the minimum of :math:`y^2+(y-\omega)^2/(2\Sigma)` is :math:`\omega^2/(2\Sigma+1)`, and

.. math:: M = \frac N{4(\Sigma+\frac12)}\big(Q'-2m+q\big), \qquad Q' = Q_0+\tfrac\Delta2 .

With the prior of :mod:`attn_lib.theory.spectral_prior` two equations are left for :math:`\delta` and :math:`\epsilon`
of :math:`S\simeq(S_0+\delta Z-\epsilon)_+`, at width p = d and beta = beta0:

.. math::

    \frac{\partial_\delta J}{2\delta} = N\alpha - \frac\lambda\epsilon, \qquad
    Q'-J-2\epsilon J_1+\delta\,\partial_\delta J = N\alpha\,\delta^2 .

For :math:`\lambda\to0` at finite :math:`\epsilon` they are those of :mod:`attn_lib.theory.ridgeless`; above the
interpolation threshold :math:`\lambda/\epsilon` stays finite.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from attn_lib._checks import check_number
from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import SingleHead
from attn_lib.spectra.free_convolution import FreeConvolution
from attn_lib.theory.thresholds import constraints

__all__ = ["LogitFit", "solve_logits"]


class LogitFit(NamedTuple):
    """``delta``, ``epsilon``; ``residual``, root of the data term, over d; ``matrix_error``, tr (S - S0)^2."""

    delta: float
    epsilon: float
    residual: float
    matrix_error: float


def solve_logits(target, *, alpha, Delta, lam, n_tokens=2):
    r"""Solve the state evolution of least squares in the logits.

    The data term of the minimum is :math:`d^2r^2` with

    .. math:: r = \frac\delta{\sqrt2}\Big(N\alpha-\frac{\partial_\delta J}{2\delta}\Big)
                = \frac{\delta\lambda}{\sqrt2\,\epsilon} .

    At given delta the first equation has one root epsilon (at lam = 0 above the threshold: epsilon = 0), as
    :math:`\partial_\delta J` and :math:`\lambda/\epsilon` fall with epsilon; on this curve the second one is solved.

    Parameters
    ----------
    target : MarchenkoPastur, PowerLaw or FiniteRank
    alpha : float
        Sample complexity n/d^2, > 0.
    Delta : float
        Variance of the label noise, >= 0.
    lam : float
        Weight decay, >= 0.
    n_tokens : int
        T >= 2.

    Returns
    -------
    LogitFit

    Raises
    ------
    ValueError
        Naming the argument, its value and the allowed range.
    ConvergenceError
        No root for delta/sqrt(Q0) in [1e-5, 1e5]; so without noise and lam where the target is recovered, delta = 0.

    Accuracy
    --------
    1e-8, relative, of delta and epsilon; the error 1e-10 of tails limits ``matrix_error`` where it is small.

    Source
    ------
    arXiv 2509.24914 for the layer; derived in the chapter on interpolation.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur
    >>> target = MarchenkoPastur(kappa0=0.5)
    >>> [round(solve_logits(target, alpha=a, Delta=0.5, lam=0.0).residual, 3) for a in (0.1, 0.2)]
    [0.0, 0.106]
    """
    problem = SingleHead(alpha=alpha, lam=1.0, Delta=Delta, kappa=1.0, target=target, n_tokens=n_tokens)
    check_number("lam", lam, "a finite number >= 0", lambda v: v >= 0)
    per_unknown, Q_prime = constraints(problem.n_tokens) * alpha, problem.noisy_second_moment

    @cache
    def at(log_delta):
        """A point of the curve, and by how much it misses the second equation."""
        noisy = FreeConvolution(target, np.exp(log_delta))
        delta = noisy.delta

        def lacking(eps):
            freedom = noisy.tail(eps).d1J / (2 * delta)
            return lam + eps * (freedom - per_unknown) if lam > 0 else freedom - per_unknown

        eps = lam / per_unknown
        if lacking(eps) > 0:
            eps = brentq(lacking, eps, target.upper + 2 * delta + eps, xtol=1e-13, rtol=1e-10)
        tail = noisy.tail(eps)
        error = Q_prime - tail.J - 2 * eps * tail.J1 + delta * tail.d1J
        return delta, eps, tail, error, error - per_unknown * delta**2

    middle = np.log(target.second_moment) / 2
    low, high = middle - np.log(10.0), middle
    while at(low)[-1] < 0 and low > middle - np.log(1e5):
        low -= 1.0
    while at(high)[-1] > 0 and high < middle + np.log(1e5):
        high += 1.0
    if at(low)[-1] < 0 or at(high)[-1] > 0:
        ends = float(np.exp(low)), float(np.exp(high))
        raise ConvergenceError(f"alpha = {alpha!r}: no root for delta in {ends}", partial=ends)
    delta, eps, tail, error, _ = at(brentq(lambda log_delta: at(log_delta)[-1], low, high, xtol=1e-10))
    return LogitFit(
        delta=float(delta),
        epsilon=float(eps),
        residual=float(delta * per_unknown - tail.d1J / 2) / 2**0.5,
        matrix_error=float(error - Delta / 2),
    )
