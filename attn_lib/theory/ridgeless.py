r"""The interpolating phase: weights of least norm among those with training loss 0 (arXiv 2509.24914).

Below the interpolation threshold the training loss vanishes as :math:`\lambda\to0^+`, and of all minima the penalty
selects the one with the least :math:`\mathrm{tr}\,S`. There the response :math:`\Sigma` diverges like
:math:`1/\lambda`, and the channel becomes elementary: a sample holds the student's field at the target's times
:math:`\beta_0/\beta`, up to one constant, so that

.. math:: M \simeq \frac N{4\Sigma}\big(b^2Q' - 2bm + q\big), \qquad b = \frac{\beta_0}\beta, \quad N = T^2+T-2.

With the prior of :mod:`attn_lib.theory.spectral_prior` the fixed point is reduced to two equations for the noise
:math:`\delta` and the threshold :math:`\epsilon` of :math:`S\simeq\eta\,(S_0+\delta Z-\epsilon)_+`:

.. math:: \frac{\partial_\delta J}{2\delta} = N\alpha, \qquad
          J + 2\epsilon J_1 - \tfrac\delta2\partial_\delta J = Q', \qquad \eta = b.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import SingleHead
from attn_lib.spectra.free_convolution import FreeConvolution
from attn_lib.theory.single_head import test_error
from attn_lib.theory.thresholds import alpha_interpolation, alpha_recovery, constraints

__all__ = ["RidgelessSolution", "solve_ridgeless"]


@dataclass(frozen=True, kw_only=True)
class RidgelessSolution:
    r"""The limit :math:`\lambda\to0^+` of a :class:`~attn_lib.theory.single_head.Solution` with training loss 0.

    Attributes
    ----------
    alpha : float
    eta, delta, epsilon : float
        The learned S is distributed as eta ReLU(S0 + delta Z - epsilon).
    m, q : float
        Overlaps tr S S0 and tr S^2.
    trace : float
        tr S, the least that interpolates; the penalty is sqrt(kappa) lam times it.
    rank : float
        rank(W)/d. The formulas hold for widths kappa >= rank.
    test_error : float
        On a fresh sample, whose label is noisy.
    """

    alpha: float
    eta: float
    delta: float
    epsilon: float
    m: float
    q: float
    trace: float
    rank: float
    test_error: float


def solve_ridgeless(target, *, alpha, Delta, n_tokens=2, beta=1.0, beta0=1.0):
    r"""Interpolating weights of least norm.

    At given delta the first equation has one root epsilon, since :math:`\partial_\delta J` falls with epsilon; on this
    curve the second one is solved for delta.

    Parameters
    ----------
    target : MarchenkoPastur, PowerLaw or FiniteRank
    alpha : float
        Sample complexity n/d^2, below the interpolation threshold; without noise also below that of recovery.
    Delta : float
        Variance of the label noise, >= 0.
    n_tokens : int
        T >= 2.
    beta, beta0 : float
        Inverse temperatures of student and target, > 0.

    Returns
    -------
    RidgelessSolution

    Raises
    ------
    ValueError
        Naming the argument, its value and the allowed range; so for an alpha at which no weights interpolate, or at
        which they recover the target and S = S0 beta0/beta.
    ConvergenceError
        alpha so close to a threshold, or so small, that the equations have no root for delta/sqrt(Q0) in [1e-5, 1e5].

    Accuracy
    --------
    1e-8 of delta, epsilon and the overlaps, relative; near perfect recovery the error 1e-11 of the overlaps limits the
    test error. The test error is that of :func:`attn_lib.theory.single_head.test_error`.

    Source
    ------
    arXiv 2509.24914, interpolating phase; derived in the chapter on interpolation.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur
    >>> s = solve_ridgeless(MarchenkoPastur(kappa0=0.5), alpha=0.1, Delta=0.0)
    >>> round(s.rank, 3), s.m < s.q < 1.5
    (0.409, True)
    """
    problem = SingleHead(
        alpha=alpha, lam=1.0, Delta=Delta, kappa=1.0, target=target, n_tokens=n_tokens, beta=beta, beta0=beta0
    )
    limit, meaning = alpha_interpolation(target, Delta=Delta, n_tokens=n_tokens), "where the training loss can vanish"
    if Delta == 0:
        limit, meaning = alpha_recovery(target.rank, n_tokens), "above it the target is recovered"
    if not alpha < limit:
        raise ValueError(f"alpha = {alpha!r}: must be below {limit:.6g}, {meaning}")
    wanted, Q_prime = constraints(n_tokens) * alpha, problem.noisy_second_moment

    def at(log_delta):
        """epsilon and tails on the curve of the first equation; with epsilon = 0 beyond its end."""
        noisy = FreeConvolution(target, np.exp(log_delta))

        def lacking(eps):
            return noisy.tail(eps).d1J / (2 * noisy.delta) - wanted

        eps = 0.0
        if lacking(0.0) > 0:
            eps = brentq(lacking, 0.0, target.upper + 2 * noisy.delta, xtol=1e-14, rtol=1e-12)
        return noisy.delta, eps, noisy.tail(eps)

    def excess(log_delta):
        delta, eps, tail = at(log_delta)
        return tail.J + 2 * eps * tail.J1 - delta / 2 * tail.d1J - Q_prime

    middle = np.log(target.second_moment) / 2
    low, high = middle - np.log(10.0), middle
    while excess(low) > 0 and low > middle - np.log(1e5):
        low -= 1.0
    while excess(high) < 0 and high < middle + np.log(1e5):
        high += 1.0
    if excess(low) > 0 or excess(high) < 0:
        ends = float(np.exp(low)), float(np.exp(high))
        raise ConvergenceError(f"alpha = {alpha!r}: no root for delta in {ends}", partial=ends)
    delta, eps, tail = at(brentq(excess, low, high, xtol=1e-10))
    eta = beta0 / beta
    m, q = eta * (tail.J + eps * tail.J1 - delta / 2 * tail.d1J), eta**2 * tail.J
    return RidgelessSolution(
        alpha=alpha,
        eta=eta,
        delta=float(delta),
        epsilon=float(eps),
        m=float(m),
        q=float(q),
        trace=eta * tail.J1,
        rank=tail.mass,
        test_error=test_error(problem, m, q),
    )
