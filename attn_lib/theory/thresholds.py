r"""How many samples a single head can interpolate, and how many it needs to recover its target (arXiv 2509.24914).

A label tells the noisy pre-activations :math:`\beta_0(z(S_0)+\xi)` up to one constant: the rows of a softmax determine
a symmetric field but for a multiple of the all-ones matrix. A sample is therefore worth :math:`\tfrac T2(T+1)-1`
linear measurements of a symmetric matrix, which has :math:`d^2/2` unknowns. Their ratio is :math:`N\alpha` with

.. math:: N = T^2 + T - 2.

All thresholds are fractions 1/N of pure numbers. With tails of :math:`\mu_\delta` above 0, the law of
:math:`S_0+\delta Z`, interpolation ends where

.. math:: J - \tfrac\delta2\partial_\delta J = Q_0 + \tfrac\Delta2, \qquad
          N\alpha_{\rm interp} = \frac{\partial_\delta J}{2\delta},

and weights of least norm that interpolate noiseless labels are those of the target above :math:`\alpha_{\rm perf}`,
of which :math:`N\alpha_{\rm perf}` is the statistical dimension of a cone, divided by :math:`d^2/2`
(:func:`alpha_recovery`).
"""

import numpy as np
from scipy.optimize import brentq

from attn_lib._checks import check_integer, check_number
from attn_lib.problems import SingleHead
from attn_lib.spectra.free_convolution import FreeConvolution

__all__ = ["alpha_interpolation", "alpha_recovery", "constraints"]

_LEAST = 1e-6  # of delta/sqrt(Q0), where the limit of no noise is reached to 1e-6


def constraints(n_tokens):
    r"""Linear measurements of S per sample, divided by 1/2: :math:`N = T^2+T-2`.

    Parameters
    ----------
    n_tokens : int
        T >= 2.

    Returns
    -------
    int

    Examples
    --------
    >>> [constraints(T) for T in (2, 3, 4)]
    [4, 10, 18]
    """
    check_integer("n_tokens", n_tokens, 2)
    n_tokens = int(n_tokens)
    return n_tokens**2 + n_tokens - 2


def alpha_interpolation(target, *, Delta, n_tokens=2):
    r"""The largest n/d^2 at which weights of full width can have training loss 0.

    The end of the phase of :func:`attn_lib.theory.ridgeless.solve_ridgeless`, where its threshold epsilon is 0:

    .. math:: f(\delta) = \mathrm{tr}\,S_0(S_0+\delta Z)_+ = J(\delta, 0) - \tfrac\delta2\partial_\delta J(\delta, 0)
              = Q_0 + \tfrac\Delta2, \qquad N\alpha = \frac{\partial_\delta J(\delta, 0)}{2\delta}.

    f increases from :math:`Q_0` without bound, so there is one root. Without noise it is :math:`\delta\to0`, and with
    r the rank of the target divided by d

    .. math:: N\alpha = 1-\tfrac12(1-r)^2 ;

    labels of the target can then be interpolated at any :math:`\alpha`, but above this one by :math:`S=S_0` only.

    Parameters
    ----------
    target : MarchenkoPastur, PowerLaw or FiniteRank
    Delta : float
        Variance of the label noise, >= 0. The threshold falls with it, to 1/(2N).
    n_tokens : int
        T >= 2.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        Naming the argument, its value and the allowed range.

    Accuracy
    --------
    1e-9; 1e-6 where Delta is positive but below 1e-8.

    Source
    ------
    arXiv 2509.24914, interpolation threshold; derived in the chapter on interpolation.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur
    >>> round(alpha_interpolation(MarchenkoPastur(kappa0=0.5), Delta=0.5), 4)
    0.1535
    """
    problem = SingleHead(alpha=1.0, lam=1.0, Delta=Delta, kappa=1.0, target=target, n_tokens=n_tokens)
    N, Q0 = constraints(problem.n_tokens), target.second_moment
    if Delta == 0:
        return (1 - (1 - target.rank) ** 2 / 2) / N

    def excess(log_delta):
        delta = np.exp(log_delta)
        tail = FreeConvolution(target, delta).tail(0.0)
        return tail.J - delta / 2 * tail.d1J - problem.noisy_second_moment

    low = high = np.log(_LEAST * Q0**0.5)
    while excess(high) < 0:
        low, high = high, high + 2
    delta = np.exp(brentq(excess, low, high, xtol=1e-12) if high > low else low)
    return float(FreeConvolution(target, delta).tail(0.0).d1J / (2 * delta * N))


def alpha_recovery(kappa0, n_tokens=2):
    r"""The n/d^2 above which the interpolating weights of least norm recover a target without label noise.

    With the semicircle law :math:`\rho_{\rm sc}` on (-2, 2) and e in (0, 2],

    .. math::

        \kappa_0e = (1-\kappa_0)\int_e^2(x-e)\rho_{\rm sc}, \qquad
        N\alpha = 1-(1-\kappa_0)^2\Big(1-\int_e^2x(x-e)\rho_{\rm sc}\Big).

    :math:`N\alpha\,d^2/2` is the statistical dimension of the cone of directions that leave S0 positive semidefinite
    and do not increase its trace. Of the target only the rank matters: for any law call it with ``law.rank``.

    Parameters
    ----------
    kappa0 : float
        Rank of the target divided by d, > 0; from 1 on the target has full rank and the threshold is 1/N.
    n_tokens : int
        T >= 2.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        Naming the argument, its value and the allowed range.

    Accuracy
    --------
    1e-10, relative.

    Source
    ------
    Amelunxen, Lotz, McCoy and Tropp, Inf. Inference 3 (2014) 224, for the cone; derived in the chapter on
    interpolation, from the cone and from the state evolution.

    Examples
    --------
    >>> round(alpha_recovery(0.5), 5), round(alpha_recovery(0.25), 5)
    (0.21109, 0.14697)
    """
    check_number("kappa0", kappa0, "a finite number > 0", lambda v: v > 0)
    N, rest = constraints(n_tokens), max(1 - kappa0, 0.0)
    if rest == 0:
        return 1 / N

    def imbalance(theta):
        mass, first, _ = _semicircle_moments(theta)
        e = 2 * np.cos(theta)
        return rest * (first - e * mass) - kappa0 * e

    theta = brentq(imbalance, 0.0, np.pi / 2, xtol=1e-15)
    _, first, second = _semicircle_moments(theta)
    return float(1 - rest**2 * (1 - second + 2 * np.cos(theta) * first)) / N


def _semicircle_moments(theta):
    """Integrals of 1, x and x^2 over the semicircle law above x = 2 cos(theta), where rho dx = 2 sin(phi)^2 dphi/pi."""
    mass = (theta - np.sin(2 * theta) / 2) / np.pi
    return mass, 4 * np.sin(theta) ** 3 / (3 * np.pi), (theta - np.sin(4 * theta) / 4) / np.pi
