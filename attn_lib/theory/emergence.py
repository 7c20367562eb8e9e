r"""Emergence: the number of samples at which each mode of the target is recovered (arXiv 2509.24914).

A mode is an eigenvector of the target, with eigenvalue s. It is recovered once it stands out of the noise and of the
threshold (:mod:`attn_lib.theory.learned_modes`),

.. math:: s>\delta, \qquad x(s) = s+\frac{\delta^2}s > \epsilon, \qquad\text{that is}\quad s > s_c(\delta, \epsilon).

Noise and threshold are those of the state evolution and fall with :math:`\alpha`, so that strong modes come first.
How much of a mode is learned needs no such condition: with the eigenvalues :math:`x_k` and eigenvectors :math:`v_k` of
:math:`S_0+\delta Z`, and the eigenvector u of the target,

.. math::

    w = \sum_{x_k>\epsilon}(v_k\cdot u)^2, \qquad
    u^\top Su = \eta\sum_{x_k>\epsilon}(x_k-\epsilon)(v_k\cdot u)^2 .
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attn_lib._checks import check_integer, check_number, check_type, nested_floats
from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import FiniteRank, SingleHead
from attn_lib.spectra.free_convolution import FreeConvolution
from attn_lib.theory.learned_modes import least_recovered
from attn_lib.theory.single_head import Solution, solve

__all__ = ["ModeOverlaps", "Recovery", "learning_path", "mode_overlaps", "recovery_sizes"]

_STEP = 1e-2  # in units of the spread delta/sqrt(d) of a level, and of log alpha
_PRECISION = 1e-4  # of log alpha
_MAX_SECANTS = 50


class Recovery(NamedTuple):
    r"""Where a mode is recovered.

    ``eigenvalue`` of the target, ``solution`` at the :math:`\alpha` where :math:`s=s_c`, and ``slope`` =
    :math:`d(x-\epsilon)/d\log\alpha` there, at fixed s.
    """

    eigenvalue: float
    solution: Solution
    slope: float

    @property
    def alpha(self):
        """Of the solution."""
        return self.solution.problem.alpha

    @property
    def jump(self):
        r"""Squared overlap :math:`1-\delta^2/s^2` with which the mode appears; 0 if the threshold is in the noise."""
        return max(1 - (self.solution.delta / self.eigenvalue) ** 2, 0.0)

    def spread(self, d):
        r"""Standard deviation of :math:`\log\alpha` over data sets, for a mode that is not repeated.

        An outlier of a d x d matrix fluctuates around x(s) with the variance :math:`2\delta^2(1-\delta^2/s^2)/d`.
        Fluctuations of delta and epsilon, which for n of order d are of the same order in d, are left out.

        Parameters
        ----------
        d : int

        Returns
        -------
        float

        Raises
        ------
        ValueError
            The mode was recovered out of the noise, jump = 0: then :math:`\log\alpha` spreads as :math:`d^{-1/3}`.
        """
        check_integer("d", d, 2)
        if self.solution.epsilon <= 2 * self.solution.delta:
            raise ValueError(
                f"epsilon = {self.solution.epsilon:.4g}: must be > 2 delta = {2 * self.solution.delta:.4g}"
            )
        return self.solution.delta * (2 * self.jump / d) ** 0.5 / self.slope


class ModeOverlaps(NamedTuple):
    r"""How much of each mode is learned; arrays, one entry for each different eigenvalue, descending.

    ``eigenvalue`` of the target; ``weight`` = w, the squared length of the projection of u onto the range of S; and
    ``strength`` = :math:`u^\top Su/s`.
    """

    eigenvalue: np.ndarray
    weight: np.ndarray
    strength: np.ndarray


def recovery_sizes(problem, *, n_modes=None, power=0.5, accuracy=1e-3):
    r"""Sample complexities at which the modes of a target are recovered, strongest first.

    The root of :math:`s=s_c(\delta(\alpha), \epsilon(\alpha))` for each different eigenvalue s > 0, with the weight
    decay

    .. math:: \lambda(\alpha) = \lambda\,(\alpha/\alpha_{\rm problem})^{\rm power}.

    Parameters
    ----------
    problem : SingleHead
        With a list of eigenvalues as its target.
    n_modes : int, optional
        How many of the different eigenvalues, all by default.
    power : float
        In [0, 1). 0 is a fixed weight decay; at 1/2 the threshold falls like the noise of the gradient.
    accuracy : float
        Of the solutions, see :func:`attn_lib.theory.single_head.solve`.

    Returns
    -------
    tuple of Recovery

    Raises
    ------
    ValueError
        Naming the argument, its value and the allowed range.
    ConvergenceError
        No fixed point at one of the values of alpha that were tried, or no root.

    Accuracy
    --------
    1e-4 of log alpha for the root, and the accuracy of the solutions. The condition takes the mode for an outlier of a
    semicircle: right to leading order in the fraction of eigenvalues that equal s, of those that exceed it, and of
    those that are not small compared with s. If :math:`s_c` did not fall with alpha there could be more roots; we have
    not seen this.

    Source
    ------
    arXiv 2509.24914 describes the outliers that leave the bulk one by one; the equation is ours.

    Examples
    --------
    >>> from attn_lib.problems import FiniteRank, SingleHead
    >>> target = FiniteRank(eigenvalues=[8.0, 2.0], d=100)
    >>> problem = SingleHead(alpha=0.1, lam=0.3, Delta=0.5, kappa=1.0, target=target)
    >>> [round(100 * r.alpha, 1) for r in recovery_sizes(problem)]
    [0.4, 20.9]
    """
    check_type("problem", problem, SingleHead)
    eigenvalues = _eigenvalues(problem, n_modes)
    check_number("power", power, "a number in [0, 1)", lambda v: 0 <= v < 1)
    start = None

    def solved(log_alpha):
        nonlocal start
        solution = solve(_at(problem, np.exp(log_alpha), power), accuracy=accuracy, start=start)
        start = solution.hats
        return solution

    found, log_alpha = [], np.log(problem.alpha)
    for s in map(float, eigenvalues):
        log_alpha, here = _recovery(solved, s, log_alpha)
        slope = (_distance(solved(log_alpha + _STEP), s) - _distance(here, s)) / _STEP
        found.append(Recovery(s, here, slope))
    return tuple(found)


def learning_path(problem, alphas, *, power=0.5, accuracy=1e-3):
    """Solutions at several sample complexities, from many samples to few, each starting where the last one ended.

    Parameters
    ----------
    problem : SingleHead
    alphas : array
        Ascending, > 0.
    power : float
        Of the weight decay, as in :func:`recovery_sizes`.
    accuracy : float

    Returns
    -------
    list of Solution
        In the order of alphas.

    Raises
    ------
    ValueError
        Naming the argument, its value and the allowed range.
    ConvergenceError
        As :func:`attn_lib.theory.single_head.solve`.
    """
    check_type("problem", problem, SingleHead)
    check_number("power", power, "a finite number", lambda v: True)
    alphas = nested_floats(
        "alphas",
        alphas,
        "a sequence of numbers > 0, ascending, at least one",
        lambda a: a.ndim == 1 and a.size and (a > 0).all() and (np.diff(a) > 0).all(),
    )
    solutions, start = [], None
    for alpha in alphas[::-1]:
        solutions.append(solve(_at(problem, alpha, power), accuracy=accuracy, start=start))
        start = solutions[-1].hats
    return solutions[::-1]


def mode_overlaps(solution, *, n_modes=None):
    r"""How much of each mode is learned, without the assumption that modes are isolated.

    By :math:`\partial x_k/\partial s=(v_k\cdot u)^2`, with tails of the law of :math:`S_0+\delta Z` as functions of one
    eigenvalue s that makes up a fraction f of the list,

    .. math:: w = \frac1f\frac{\partial J_1}{\partial s}, \qquad u^\top Su = \frac\eta{2f}\frac{\partial J}{\partial s}.

    Parameters
    ----------
    solution : Solution
        Of :func:`attn_lib.theory.single_head.solve`, with a list of eigenvalues as its target.
    n_modes : int, optional
        How many of the different eigenvalues > 0, all by default.

    Returns
    -------
    ModeOverlaps

    Raises
    ------
    ValueError
        A target with a density, or a solution without threshold (of ``solve_direct``).

    Accuracy
    --------
    1e-5 of w and of the strength, by central differences.

    Examples
    --------
    >>> from attn_lib.problems import FiniteRank, SingleHead
    >>> target = FiniteRank(eigenvalues=[8.0, 2.0], d=100)
    >>> problem = SingleHead(alpha=0.2, lam=0.5, Delta=0.5, kappa=1.0, target=target)
    >>> mode_overlaps(solve(problem, accuracy=1e-2)).weight.round(2)
    array([0.99, 0.  ])
    """
    if not isinstance(solution, Solution) or solution.epsilon is None:
        raise ValueError(f"solution of type {type(solution).__name__}: must be one of solve")
    eigenvalues = _eigenvalues(solution.problem, n_modes)
    spectrum, delta = solution.problem.target.spectrum, solution.delta
    weight, strength = [], []
    for s in eigenvalues:
        same = spectrum == s
        step = min(_STEP * delta / len(spectrum) ** 0.5, s / 2)
        laws = [FiniteRank(eigenvalues=spectrum + k * step * same) for k in (-1, 1)]
        low, high = (FreeConvolution(law, delta).tail(solution.epsilon) for law in laws)
        weight.append((high.J1 - low.J1) / (2 * step * same.mean()))
        strength.append(solution.eta * (high.J - low.J) / (4 * step * same.mean() * s))
    return ModeOverlaps(eigenvalues, np.array(weight), np.array(strength))


def _eigenvalues(problem, n_modes):
    """The different eigenvalues > 0, descending, the first ones if n_modes is given."""
    if not hasattr(problem.target, "atoms"):
        raise ValueError(f"target = {problem.target!r}: must be a list of eigenvalues, PowerLaw or FiniteRank")
    values = problem.target.atoms[0][::-1]
    values = values[values > 0]
    if n_modes is not None:
        check_integer("n_modes", n_modes, 1, len(values))
    return values[:n_modes]


def _at(problem, alpha, power):
    return replace(problem, alpha=float(alpha), lam=problem.lam * float(alpha / problem.alpha) ** power)


def _distance(solution, s):
    """Of the outlier from the threshold."""
    return s + solution.delta**2 / s - solution.epsilon


def _recovery(solved, s, log_alpha):
    """Where the excess log(s/s_c) vanishes, and the solution there: secants, of a function with slope about 1/2."""
    last, slope, step = None, 0.5, 0.0
    for _ in range(_MAX_SECANTS):
        solution = solved(log_alpha)
        excess = np.log(s / least_recovered(solution.delta, solution.epsilon))
        if last is not None and abs(step) <= _PRECISION:
            return log_alpha, solution
        if last is not None:
            slope = np.clip((excess - last) / step, 0.1, 2.0)
        last, step = excess, np.clip(-excess / slope, -2.0, 2.0) or _PRECISION
        log_alpha += step
    raise ConvergenceError(
        f"s = {s}: no alpha found at which it is recovered, the last is {np.exp(log_alpha)}", solution
    )
