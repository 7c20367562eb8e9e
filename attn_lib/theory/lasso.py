r"""State evolution of the LASSO, the diagonal model of Part II (arXiv 2509.24882).

The minimiser behaves as if every entry of the target were seen by itself, in Gaussian noise, and passed through a soft
threshold:

.. math::

    \hat\theta_i = \mathcal S_\epsilon(\theta_{*i}+\delta g_i), \qquad
    \mathcal S_\epsilon(x) = \mathrm{sign}(x)\,(|x|-\epsilon)_+ \quad
    [\,(x-\epsilon)_+\ \text{under}\ \theta\ge0\,], \qquad g_i\sim N(0, 1).

Noise and threshold follow from the mean squared error D and the fraction :math:`\rho` of entries that are not zero,

.. math::

    \alpha\delta^2 = \Delta + D, \qquad \lambda = 2\epsilon\,(\alpha-\rho), \qquad
    D = \frac1d\sum_i\mathbb E(\hat\theta_i-\theta_{*i})^2, \qquad \rho = \frac1d\sum_i P(\hat\theta_i\neq0).

Let :math:`v=\delta^2` and :math:`a=\epsilon/\delta`. At fixed a, :math:`D=vA+B` with A from the entries that are kept,
B from those that are set to zero, and :math:`\partial_vD=A`; D is concave in v. So Newton's method for the first
equation is :math:`v\leftarrow(\Delta+B)/(\alpha-A)` and falls monotonically to the root from any v above it. Then
:math:`\lambda(a)` is a function of one variable, and its root is bracketed. No start is needed.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from attn_lib._checks import check_number, check_type
from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import DiagonalModel

__all__ = ["LassoSolution", "Moments", "moments", "noise_gain", "solve_lasso"]


class Moments(NamedTuple):
    r"""Averages over the list of entries at :math:`v=\delta^2` and :math:`\epsilon=a\delta`.

    ``kept`` = A and ``zeroed`` = B, with :math:`D=vA+B`; ``active`` = :math:`\rho`; ``l1`` =
    :math:`\mathbb E|\hat\theta|`, ``m`` = :math:`\mathbb E\hat\theta\theta_*` and ``q`` =
    :math:`\mathbb E\hat\theta^2`.
    """

    kept: float
    zeroed: float
    active: float
    l1: float
    m: float
    q: float


@dataclass(frozen=True, kw_only=True)
class LassoSolution:
    r"""The minimum of the risk of a :class:`~attn_lib.problems.DiagonalModel`, in the limit of large d.

    Attributes
    ----------
    problem : DiagonalModel
    delta, epsilon : float
        Noise and threshold: an entry is distributed as the soft threshold of theta* + delta g.
    active : float
        Fraction of entries that are not zero.
    m, q : float
        Overlaps ``theta . theta* / d`` and ``|theta|^2 / d``.
    excess : float
        ``|theta - theta*|^2 / d``, the test error without the noise of the labels.
    test_error : float
        ``E (y - x . theta / sqrt(d))^2`` on a fresh sample, Delta + excess.
    train_loss, penalty : float
        The two terms of the minimum of the risk, divided by d.
    residual : float
        Largest relative residual of the two equations.
    """

    problem: DiagonalModel
    delta: float
    epsilon: float
    active: float
    m: float
    q: float
    excess: float
    test_error: float
    train_loss: float
    penalty: float
    residual: float


def solve_lasso(problem):
    r"""Noise, threshold and errors of the LASSO.

    Parameters
    ----------
    problem : DiagonalModel

    Returns
    -------
    LassoSolution
        At lam = 0 the limit lam -> 0+: least squares where :math:`\alpha>\rho` without a threshold, elsewhere the
        interpolating vector of least l1 norm, :math:`\rho=\alpha`.

    Raises
    ------
    ValueError
        Another problem.
    ConvergenceError
        No finite error (at lam = 0 and alpha = 1), or a residual above 1e-8, by rounding; ``partial`` is the
        LassoSolution with this residual.

    Accuracy
    --------
    Relative 1e-10 or better, by the residual. A solution takes about 20 passes over the list: 5 ms for 1000 different
    entries, 30 ms for 10^4.

    Source
    ------
    Donoho, Maleki and Montanari, PNAS 106 (2009) 18914, and Bayati and Montanari, IEEE Trans. Inf. Theory 58 (2012)
    1997, whose normalisations differ; derived in the chapter on the LASSO.

    Examples
    --------
    >>> from attn_lib.problems import PowerLaw
    >>> problem = DiagonalModel(alpha=0.5, lam=0.5, Delta=0.5, target=PowerLaw(gamma=1.0, d=1000))
    >>> solution = solve_lasso(problem)
    >>> round(solution.excess, 4), round(solution.active, 4)
    (0.2958, 0.3114)
    """
    check_type("problem", problem, DiagonalModel)
    alpha, lam, Delta = problem.alpha, problem.lam, problem.Delta
    target, nonnegative = problem.target, problem.nonnegative
    # with the noise that there is when no entry survives, and a threshold that none survives
    noise = ((Delta + target.second_moment) / alpha) ** 0.5
    beyond = 40 + target.upper / noise
    if lam >= 2 * beyond * noise * alpha:
        return _solution(problem, noise**2, lam / (2 * alpha * noise))

    def excess(a):
        if noise_gain(a, nonnegative) >= alpha:
            return -1.0
        v = _variance(problem, a)
        over = alpha - moments(target, v, a, nonnegative).active
        return 2 * a * v**0.5 * over - lam if lam else over

    low = 0.0
    if lam == 0 and noise_gain(0.0, nonnegative) == alpha and not (nonnegative and target.mean > 0):
        raise ConvergenceError(f"{problem}: the error diverges as lam -> 0", partial=np.inf)
    if noise_gain(0.0, nonnegative) > alpha:
        low = brentq(lambda a: noise_gain(a, nonnegative) - alpha, 0.0, 40.0, xtol=1e-15) * (1 + 1e-12)
    elif lam == 0 and excess(0.0) > 0:
        return _solution(problem, _variance(problem, 0.0), 0.0)
    high = max(1.0, 2 * low)
    while excess(high) < 0 and high < beyond:
        high *= 2
    a = brentq(excess, low, high, xtol=1e-100, rtol=1e-15, maxiter=300)
    return _solution(problem, _variance(problem, a), a)


def noise_gain(a, nonnegative=False):
    r"""Mean square of the soft threshold of pure noise, in units of its variance.

    .. math:: M(a) = \mathbb E\,\mathcal S_a(g)^2 = 2\,[(1+a^2)\,\Phi(-a)-a\,\varphi(a)]

    with the normal distribution function and density; half of it if the negative side is cut off.

    Parameters
    ----------
    a : float
        Threshold in units of the noise, >= 0.
    nonnegative : bool

    Returns
    -------
    float

    Raises
    ------
    ValueError
        a is not a finite number >= 0.

    Examples
    --------
    >>> float(noise_gain(0.0))
    1.0
    """
    check_number("a", a, "a finite number >= 0", lambda a: a >= 0)
    return (1 if nonnegative else 2) * _square(-a, a, ndtr(-a), _density(a))


def moments(target, v, a, nonnegative=False):
    r"""Averages of the soft threshold of :math:`\theta_*+\delta g` over the entries of a target.

    With :math:`u_\pm=\pm\theta_*/\delta-a`, the arguments at which either side of the threshold is passed,

    .. math::

        A &= \overline{\textstyle\sum_\pm(1+a^2)\,\Phi(u_\pm)-(u_\pm+2a)\,\varphi(u_\pm)}, &
        B &= \overline{\theta_*^2\,[1-\Phi(u_+)-\Phi(u_-)]}, \\
        \rho &= \overline{\textstyle\sum_\pm\Phi(u_\pm)}, &
        l_1 &= \delta\,\overline{\textstyle\sum_\pm u_\pm\Phi(u_\pm)+\varphi(u_\pm)},

    where the bar is the mean over the list. Under theta >= 0 only the terms with + are there.

    Parameters
    ----------
    target : PowerLaw or FiniteRank
    v : float
        delta^2 > 0.
    a : float
        epsilon/delta, >= 0.
    nonnegative : bool

    Returns
    -------
    Moments

    Examples
    --------
    Pure noise, without a threshold:

    >>> from attn_lib.problems import FiniteRank
    >>> x = moments(FiniteRank(eigenvalues=[0.0]), 4.0, 0.0)
    >>> float(x.kept), float(x.active), float(x.q)
    (1.0, 1.0, 4.0)
    """
    check_number("v", v, "a finite number > 0", lambda v: v > 0)
    check_number("a", a, "a finite number >= 0", lambda a: a >= 0)
    theta, weights = target.atoms
    delta = v**0.5
    a = min(a, 40 + target.upper / delta)  # no entry survives this, in double precision
    above, below = theta / delta - a, -theta / delta - a
    P, density = ndtr(above), _density(above)
    zero, kept = ndtr(-above), _square(above, a, P, density)
    first, second = above * P + density, (1 + above**2) * P + above * density
    l1 = first
    if not nonnegative:
        P_below, density = ndtr(below), _density(below)
        other = below * P_below + density
        zero, kept, P = zero - P_below, kept + _square(below, a, P_below, density), P + P_below
        second = second + (1 + below**2) * P_below + below * density
        l1, first = first + other, first - other
    means = kept, theta**2 * zero, P, delta * l1, theta * delta * first, v * second
    return Moments(*(weights @ x for x in means))


def _square(u, a, P, density):
    """E (g + a)^2 over g < u, which is E (g - a)^2 over g > -u, with the distribution function and density at u."""
    return (1 + a**2) * P - (u + 2 * a) * density


def _density(u):
    return np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)


def _variance(problem, a):
    """The root v of alpha v = Delta + D at threshold a sqrt(v), by Newton from above."""
    # the error of an entry is at most theta^2 plus that of pure noise, so the first v is not below the root
    kept, zeroed = noise_gain(a, problem.nonnegative), problem.target.second_moment
    v = np.inf
    for _ in range(200):
        if kept >= problem.alpha:
            break
        new = (problem.Delta + zeroed) / (problem.alpha - kept)
        if not new < v * (1 - 1e-14):
            return float(new)
        v = new
        kept, zeroed, *_ = moments(problem.target, v, a, problem.nonnegative)
    raise ConvergenceError(f"{problem}: no finite noise level at epsilon/delta = {a:.6g}", partial=float(v))


def _solution(problem, v, a):
    """Everything about a root, with the residuals of both equations."""
    alpha, lam, Delta, target = problem.alpha, problem.lam, problem.Delta, problem.target
    x = moments(target, v, a, problem.nonnegative)
    excess, epsilon = float(v * x.kept + x.zeroed), a * v**0.5
    rest = 2 * epsilon * (alpha - x.active) - lam
    solution = LassoSolution(
        problem=problem,
        delta=float(v**0.5),
        epsilon=float(epsilon),
        active=float(x.active),
        m=float(x.m),
        q=float(x.q),
        excess=excess,
        test_error=Delta + excess,
        train_loss=float(v * (alpha - x.active) ** 2),
        penalty=float(lam * x.l1),
        residual=float(max(abs(alpha * v / (Delta + excess) - 1), abs(rest) / max(lam, 2 * epsilon * alpha, 1e-300))),
    )
    if not solution.residual <= 1e-8:
        raise ConvergenceError(f"{problem}: residual {solution.residual:.1e}, above 1e-8", partial=solution)
    return solution
