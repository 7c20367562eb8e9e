r"""The prior side of full-rank attention: the spectrum of the target, Gaussian noise and a soft threshold.

At its fixed point the trained :math:`S = WW^\top/\sqrt{pd}` is distributed as
:math:`\eta\,\mathrm{ReLU}(S_0+\delta Z-\epsilon)`, Z a GOE matrix with :math:`\mathrm{tr}\,Z^2=1`, where
:math:`\mathrm{tr}=\mathrm{Tr}/d` and

.. math::

    \eta = \frac{\hat m}{\hat\Sigma}, \qquad \delta = \frac{\sqrt{\hat q}}{\hat m}, \qquad
    \epsilon = \frac{2\sqrt\kappa\lambda}{\hat m}.

With the tails :math:`J_1=\int_\epsilon(x-\epsilon)\mu_\delta(dx)`,
:math:`J=\int_\epsilon(x-\epsilon)^2\mu_\delta(dx)` of the law :math:`\mu_\delta` of :math:`S_0+\delta Z` the
potential is

.. math::

    \Phi = \tfrac14(\hat q\Sigma + 2\hat m m - \hat\Sigma q) - \frac{\hat m^2}{4\hat\Sigma} J(\delta, \epsilon)
    + \alpha M(m, q, \Sigma),

and its derivatives in the conjugates give m, q and Sigma.
"""

from typing import NamedTuple

import numpy as np

from attn_lib.spectra.binned import shortened
from attn_lib.spectra.free_convolution import FreeConvolution

__all__ = ["Hats", "Overlaps", "Prior", "direct_prior", "potential", "prior"]


class Overlaps(NamedTuple):
    """Order parameters: m = tr S S0, q = tr S^2, response Sigma, all >= 0; tr = Tr/d."""

    m: float
    q: float
    Sigma: float


class Hats(NamedTuple):
    """Conjugate order parameters."""

    m_hat: float
    q_hat: float
    Sigma_hat: float


class Prior(NamedTuple):
    """What the prior makes of the conjugates: the law of S, its overlaps, and the terms of the risk and of Phi."""

    eta: float  # scale
    delta: float  # noise
    epsilon: float | None  # threshold
    overlaps: Overlaps
    rank: float  # fraction of eigenvalues of S that are not 0
    penalty: float  # regularisation term of the risk divided by d^2
    energy: float  # the prior's term of Phi


def prior(problem, hats):
    r"""Overlaps at given conjugates.

    .. math::

        q = \eta^2 J, \qquad m = \eta\big(J + \epsilon J_1 - \tfrac\delta2\partial_\delta J\big), \qquad
        \Sigma = \frac{\partial_\delta J}{2\delta\hat\Sigma}

    Parameters
    ----------
    problem : SingleHead
    hats : Hats
        All > 0.

    Returns
    -------
    Prior
        Overlaps, rank and penalty are 0 when no eigenvalue of S0 + delta Z exceeds epsilon.

    Raises
    ------
    FloatingPointError
        A conjugate that is not a positive number.

    Accuracy
    --------
    That of :class:`~attn_lib.spectra.free_convolution.FreeConvolution`; long lists of eigenvalues are binned, with an
    error below 1e-11 (:func:`attn_lib.spectra.binned.shortened`).

    Source
    ------
    arXiv 2509.24914, fixed-point equations; derived from the potential above.
    """
    m_hat, q_hat, Sigma_hat = _positive(hats)
    eta, delta, epsilon = m_hat / Sigma_hat, q_hat**0.5 / m_hat, 2 * problem.nuclear_penalty / m_hat
    tail = FreeConvolution(shortened(problem.target, delta), delta).tail(epsilon)
    overlaps = Overlaps(
        m=eta * (tail.J + epsilon * tail.J1 - delta / 2 * tail.d1J),
        q=eta**2 * tail.J,
        Sigma=tail.d1J / (2 * delta * Sigma_hat),
    )
    penalty = problem.nuclear_penalty * eta * tail.J1
    return Prior(eta, delta, epsilon, overlaps, tail.mass, penalty, -m_hat * eta / 4 * tail.J)


def direct_prior(problem, hats):
    r"""The same for a symmetric S of any sign with the penalty :math:`\lambda\,\mathrm{tr}S^2`: a Gaussian prior.

    .. math::

        S = \frac{\hat mS_0+\sqrt{\hat q}Z}{D}, \qquad D = \hat\Sigma+4\lambda, \qquad
        m = \frac{\hat mQ_0}{D}, \qquad q = \frac{\hat m^2Q_0+\hat q}{D^2}, \qquad \Sigma = \frac1D,

    and the last term of the potential becomes :math:`-(\hat m^2Q_0+\hat q)/(4D)`.

    Parameters
    ----------
    problem : SingleHead
    hats : Hats
        All > 0.

    Returns
    -------
    Prior

    Raises
    ------
    FloatingPointError
        A conjugate that is not a positive number.
    """
    m_hat, q_hat, Sigma_hat = _positive(hats)
    D, Q0 = Sigma_hat + 4 * problem.lam, problem.target.second_moment
    eta, delta = m_hat / D, q_hat**0.5 / m_hat
    q = (m_hat**2 * Q0 + q_hat) / D**2
    return Prior(eta, delta, None, Overlaps(m=eta * Q0, q=q, Sigma=1 / D), 1.0, problem.lam * q, -D * q / 4)


def potential(problem, overlaps, hats, moreau, prior=prior):
    r"""The replica-symmetric potential Phi at any overlaps and conjugates.

    Parameters
    ----------
    problem : SingleHead
    overlaps : Overlaps
    hats : Hats
        All > 0.
    moreau : float
        The average M of the channel at these overlaps: ``loss`` plus half of Sigma times ``g_g`` of its averages.
    prior
        :func:`prior` or :func:`direct_prior`.

    Returns
    -------
    float
        At the fixed point the minimum of the empirical risk divided by d^2.
    """
    m, q, Sigma = overlaps
    m_hat, q_hat, Sigma_hat = hats
    conjugation = (q_hat * Sigma + 2 * m_hat * m - Sigma_hat * q) / 4
    return conjugation + prior(problem, hats).energy + problem.alpha * moreau


def _positive(hats):
    if not (np.isfinite(hats).all() and min(hats) > 0):
        raise FloatingPointError(f"conjugates must be positive: {hats}")
    return map(float, hats)
