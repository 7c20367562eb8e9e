r"""Which power of n the excess error of a power-law target falls with, and where in the plane of n and lambda.

Near the best multiple of the target the channel does not depend on the state any more. Then
:math:`\hat m=2\alpha B`, :math:`\hat q=2\alpha A` with numbers A and B of order 1, and the noise and the threshold of
the learned spectrum are

.. math:: \delta = \frac1{B}\sqrt{\frac A{2\alpha}}, \qquad \epsilon = \frac{\sqrt\kappa\lambda}{\alpha B}.

A mode :math:`s_i=\sqrt d\,i^{-\gamma}` is recovered if :math:`s_i>\delta` and :math:`s_i+\delta^2/s_i>\epsilon`. The
regimes follow from comparing :math:`\delta`, :math:`\epsilon`, :math:`s_1` and :math:`s_d`.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attn_lib._checks import check_type
from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import SingleHead
from attn_lib.spectra.laws import PowerLaw
from attn_lib.theory.attention_channel import conjugates
from attn_lib.theory.error_decomposition import weights
from attn_lib.theory.learned_modes import least_recovered
from attn_lib.theory.single_head import channel_of
from attn_lib.theory.spectral_prior import Overlaps

__all__ = ["RATES", "Regime", "Scales", "regime", "scales"]

RATES = {
    "plateau": lambda gamma: 0.0,
    "sequential recovery": lambda gamma: -1 + 1 / (2 * gamma),
    "variance": lambda gamma: -1.0,
    "partial shrinkage": lambda gamma: -2 + 1 / gamma,
    "full shrinkage": lambda gamma: -2.0,
}
"""Exponents of n, at fixed lambda and d, by the name of the regime."""

_EDGE = 2.0  # of the noise, in units of delta
_ACCURACY, _MAX_RULES = 1e-2, 5  # relative, of the scales
_NEAR = 2.0  # a factor by which epsilon may miss the edge


class Scales(NamedTuple):
    r"""Noise and threshold without a solution: ``delta`` and ``epsilon`` near the best multiple of the target."""

    delta: float
    epsilon: float


class Regime(NamedTuple):
    """Name, predicted exponent of n at fixed lambda, and the scales that decided."""

    name: str
    exponent: float
    scales: Scales


def scales(problem, *, learned=True):
    r"""Noise and threshold at the best multiple of the target, or at S = 0.

    Parameters
    ----------
    problem : SingleHead
    learned : bool
        Whether S is taken at :math:`s_*S_0` or at 0.

    Returns
    -------
    Scales

    Raises
    ------
    ValueError
        Another problem.
    ConvergenceError
        The accuracy is not reached on the finest rule, as for fields so strong that a softmax is a step.

    Accuracy
    --------
    1e-2, by rules that agree; mostly better. It is the limit of many samples (learned) and that of few.

    Examples
    --------
    >>> target = PowerLaw(gamma=1.0, d=200)
    >>> found = scales(SingleHead(alpha=100.0, lam=1.0, Delta=0.5, kappa=1.0, target=target))
    >>> round(found.delta, 3), round(found.epsilon, 3)
    (0.033, 0.016)
    """
    check_type("problem", problem, SingleHead)
    m_hat, q_hat = _per_sample(replace(problem, alpha=1.0, lam=1.0, kappa=1.0), learned)
    alpha = problem.alpha
    return Scales(float((q_hat / alpha) ** 0.5 / m_hat), float(2 * problem.nuclear_penalty / (alpha * m_hat)))


@lru_cache(maxsize=64)
def _per_sample(problem, learned):
    """m_hat and q_hat divided by alpha, which depend on neither alpha nor lam, on rules refined until they agree."""
    s, Q0 = weights(problem).s_star if learned else 0.0, problem.target.second_moment
    overlaps, channel, last = Overlaps(m=s * Q0, q=s**2 * Q0, Sigma=0.0), channel_of(problem), None
    for _ in range(_MAX_RULES):
        hats = conjugates(channel, overlaps, channel.averages(overlaps), "derivative")
        found = np.array([hats.m_hat, hats.q_hat])
        if last is not None:
            error = channel.error_share * np.abs(found / last - 1).max()
            if error <= _ACCURACY:
                return found
        channel, last = channel.refined(), found
    raise ConvergenceError(f"{problem}: noise and threshold are uncertain by {error:.1g}, more than {_ACCURACY}", found)


def regime(problem):
    r"""The regime of a problem with a power-law target, and the exponent predicted there.

    With the threshold :math:`s_c` above which modes are recovered, in this order:

    - *plateau*, exponent 0: :math:`s_1<s_c` at the scales of S = 0; too few samples (:math:`s_1<\delta`) or too much
      weight decay.
    - all modes are recovered, :math:`s_d>s_c`: *full shrinkage*, -2, if :math:`\epsilon>2\delta`, else *variance*, -1.
    - *partial shrinkage*, :math:`-2+1/\gamma`: :math:`\epsilon>4\delta`, modes above :math:`\epsilon` are found.
    - *variance*, -1: :math:`\epsilon<\delta` and more measurements than entries, :math:`(T^2+T-2)\alpha>1`; noise
      fills the directions that are not recovered.
    - *sequential recovery*, :math:`-1+1/(2\gamma)`: the rest; :math:`\epsilon` is near the edge :math:`2\delta` of the
      noise, or brought there by interpolation.

    Parameters
    ----------
    problem : SingleHead
        With a PowerLaw target and Delta > 0.

    Returns
    -------
    Regime

    Raises
    ------
    ValueError
        Another target, or Delta = 0, where the noise is the error itself.
    ConvergenceError
        As :func:`attn_lib.theory.scaling_regimes.scales`.

    Accuracy
    --------
    Boundaries are defined up to factors of order 1, and local exponents pass from one value to the next over a decade
    of n. With few samples, :math:`(T^2+T-2)\alpha<1`, and small lambda the true scales are a few times larger.
    There label noise passes the threshold, too: beyond :math:`n\sim d^{1+4\gamma/(14\gamma-5)}` the error of
    :math:`\lambda\to0` rises towards the interpolation peak. This is not told apart from sequential recovery.

    Source
    ------
    arXiv 2509.24914 and arXiv 2509.24882 for the rates; the constants of the boundaries are ours.

    Examples
    --------
    >>> target = PowerLaw(gamma=1.5, d=1000)
    >>> regime(SingleHead(alpha=0.1, lam=0.13, Delta=0.5, kappa=1.0, target=target))[:2]
    ('sequential recovery', -0.6666666666666667)
    """
    check_type("problem", problem, SingleHead)
    target = problem.target
    if not isinstance(target, PowerLaw):
        raise ValueError(f"target = {target!r}: must be a PowerLaw")
    if problem.Delta == 0:
        raise ValueError(f"Delta = {problem.Delta!r}: must be > 0")
    start, found = scales(problem, learned=False), scales(problem)
    delta, epsilon = found
    if target.upper <= least_recovered(*start):
        name = "plateau"
    elif target.lower > least_recovered(*found):
        name = "full shrinkage" if epsilon > _EDGE * delta else "variance"
    elif epsilon > _EDGE * _NEAR * delta:
        name = "partial shrinkage"
    elif epsilon < _EDGE / _NEAR * delta and problem.alpha * _measurements(problem) > 1:
        name = "variance"
    else:
        name = "sequential recovery"
    return Regime(name, RATES[name](target.gamma), found)


def _measurements(problem):
    """Effective number per sample and entry of S, T^2 + T - 2."""
    return problem.n_tokens**2 + problem.n_tokens - 2
