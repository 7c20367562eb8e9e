r"""Where the positional and the semantic solution exchange their roles as the sample complexity grows.

- :func:`alpha_c`: the train losses of the two branches cross, and with them the global minimum.
- :func:`alpha_l`: the semantic test error falls below that of the linear positional baseline.
- :func:`branch_limits`: where each branch is born, ends, and gains or loses stability.

By the envelope theorem :math:`\partial_\alpha(\text{train loss})` is the mean Moreau value, a by-product of each
solution, so the crossing is found by Newton's method without a numerical derivative.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from attn_lib.problems import PositionalSemantic
from attn_lib.theory.positional_semantic import linear_baseline, solve

__all__ = ["BranchLimits", "NoTransition", "alpha_c", "alpha_l", "branch_limits", "loss_difference"]

DEFAULT_A = PositionalSemantic.A
RANGE = (0.02, 40.0)  # of sample complexities searched


class NoTransition(ValueError):
    """The transition asked for does not happen in the range of sample complexities searched."""


class LossDifference(NamedTuple):
    """Semantic minus positional train loss, its derivative in alpha, its quadrature error, and both solutions."""

    value: float
    slope: float
    error: float
    semantic: object
    positional: object


def loss_difference(problem, *, accuracy=1e-4, near=None):
    """Train loss of the semantic branch minus that of the positional branch.

    Negative: the semantic minimum is the global one. A branch that has collapsed counts with the loss of the
    uninformed point into which it has merged.

    Parameters
    ----------
    problem : PositionalSemantic
    accuracy : float
        As in :func:`~attn_lib.theory.positional_semantic.solve`.
    near : LossDifference, optional
        At a neighbouring alpha, for a warm start.

    Returns
    -------
    LossDifference
    """
    semantic, positional = (
        solve(problem, start, accuracy=accuracy, guess=None if old is None or old.collapsed else old.overlaps)
        for start, old in (("semantic", near and near.semantic), ("positional", near and near.positional))
    )
    return LossDifference(
        value=semantic.train_loss - positional.train_loss,
        slope=semantic.moreau - positional.moreau,
        error=semantic.quadrature_error["train_loss"] + positional.quadrature_error["train_loss"],
        semantic=semantic,
        positional=positional,
    )


def alpha_c(omega, *, sigma=0.5, lam=0.01, A=DEFAULT_A, accuracy=1e-5, guess=1.0):
    r"""Sample complexity at which the global minimum turns from positional to semantic.

    .. math:: L_{semantic}(\alpha_c) = L_{positional}(\alpha_c)

    Parameters
    ----------
    omega, sigma, lam, A
        As in :class:`~attn_lib.problems.PositionalSemantic`.
    accuracy : float
        Relative accuracy of the two solutions.
    guess : float
        Where to begin; a neighbouring omega's value saves time.

    Returns
    -------
    float

    Raises
    ------
    NoTransition
        No crossing between two existing branches for alpha in [0.02, 40].

    Accuracy
    --------
    At the default accuracy better than 1e-4 in alpha (the two losses cross at a finite angle).

    Source
    ------
    arXiv 2402.03902, the phase transition; the published 1.241 at omega = 0.3 comes from a coarser quadrature.

    Examples
    --------
    >>> round(alpha_c(omega=0.3), 3)
    1.252
    """
    problem_at = _family(omega, sigma, lam, A)
    low, high = RANGE
    alpha, near = float(np.clip(guess, *RANGE)), None
    for _ in range(60):
        near = loss_difference(problem_at(alpha), accuracy=max(accuracy, 1e-4) if near is None else accuracy, near=near)
        if near.semantic.collapsed and near.positional.collapsed:
            raise NoTransition(f"omega = {omega!r}: neither branch exists at alpha = {alpha:.4g}, nothing to cross")
        both = not (near.semantic.collapsed or near.positional.collapsed)
        if near.value > 0:
            low = alpha
        else:
            high = alpha
        newton = alpha - near.value / near.slope if both and near.slope < 0 else np.nan
        if both and abs(newton - alpha) < 1e-6 * alpha:
            return newton
        if high - low < 1e-6 * alpha:
            break
        inside = low < newton < high
        alpha = newton if inside else _between(low, high, alpha)
    raise NoTransition(f"omega = {omega!r}: no crossing of existing branches for alpha in {RANGE}")


def alpha_l(omega, *, sigma=0.5, lam=0.01, A=DEFAULT_A, accuracy=1e-5, guess=1.0):
    r"""Sample complexity beyond which semantic attention generalises better than the linear positional baseline.

    .. math:: \epsilon_g^{semantic}(\alpha_l) = \epsilon_{lin}

    Parameters
    ----------
    omega, sigma, lam, A, accuracy, guess
        As in :func:`alpha_c`.

    Returns
    -------
    float

    Raises
    ------
    NoTransition
        The semantic branch does not beat the baseline for alpha in [0.02, 40].

    Accuracy
    --------
    At the default accuracy better than 1e-4.

    Source
    ------
    arXiv 2402.03902, the comparison with linear attention; published 1.451 at omega = 0.3, from a coarser quadrature.

    Examples
    --------
    >>> round(alpha_l(omega=0.3), 3)
    1.492
    """
    problem_at = _family(omega, sigma, lam, A)
    target = linear_baseline(problem_at(1.0)).test_error
    found = {}

    def excess(alpha):
        nearest = min(found, key=lambda a: abs(np.log(a / alpha)), default=None)
        old = found.get(nearest)
        warm = None if old is None or old.collapsed else old.overlaps
        found[alpha] = solve(problem_at(alpha), "semantic", accuracy=accuracy, guess=warm)
        return found[alpha].test_error / target - 1

    low = high = float(np.clip(guess, *RANGE))
    if excess(low) < 0:
        while excess(low := low / 1.3) < 0:
            high = low
            if low < RANGE[0]:
                raise NoTransition(f"omega = {omega!r}: semantic attention beats the baseline at every alpha in {RANGE}")
        high = low * 1.3
    else:
        while excess(high := high * 1.3) > 0:
            low = high
            if high > RANGE[1]:
                raise NoTransition(f"omega = {omega!r}: semantic attention does not beat the baseline in {RANGE}")
        low = high / 1.3
    root = brentq(excess, low, high, xtol=1e-7, rtol=1e-7)
    if found[root].collapsed:
        raise NoTransition(f"omega = {omega!r}: the semantic branch does not exist at alpha = {root:.4g}")
    return root


class BranchLimits(NamedTuple):
    """Limits of the branches in alpha; nan where the event does not happen in the range searched.

    semantic_birth: theta > 0 appears. semantic_stable: above it the semantic branch is stable against m.
    positional_birth, positional_end: m > 0 appears and is lost. positional_unstable: above it the positional branch
    is unstable against theta (a minimum of the risk turns into a saddle).
    """

    semantic_birth: float
    semantic_stable: float
    positional_birth: float
    positional_end: float
    positional_unstable: float


def branch_limits(omega, *, sigma=0.5, lam=0.01, A=DEFAULT_A, accuracy=1e-4, alpha_max=20.0, n_scan=25):
    r"""Where each branch is born, ends and changes its stability.

    The branches leave the uninformed point m = theta = 0 where its response to an infinitesimal overlap,

    .. math:: \frac{\partial m_{new}}{\partial m} \quad\text{or}\quad \frac{\partial\theta_{new}}{\partial\theta},

    passes 1; a branch is stable against the other overlap while that response, taken on the branch, is below 1. The
    positional branch is followed until it collapses, continuously (at that point) or by a jump (found by bisection).

    Parameters
    ----------
    omega, sigma, lam, A, accuracy
        As in :func:`alpha_c`.
    alpha_max : float
        Largest alpha searched.
    n_scan : int
        Points of the scan between 0.02 and alpha_max in which the events are looked for.

    Returns
    -------
    BranchLimits

    Raises
    ------
    ConvergenceError
        When a solution fails.

    Accuracy
    --------
    About ``accuracy`` relative. A pair of events closer than the scan's spacing is missed.

    Source
    ------
    Derived here; arXiv 2402.03902 shows the branches but not their limits.
    """
    problem_at = _family(omega, sigma, lam, A)
    grid = np.geomspace(RANGE[0], alpha_max, n_scan)
    found = {start: {} for start in ("uninformed", "semantic", "positional")}

    def solution(start, alpha):
        known = found[start]
        if alpha not in known:
            alive = [a for a in known if not known[a].collapsed]
            nearest = min(alive, key=lambda a: abs(np.log(a / alpha)), default=None)
            guess = None if nearest is None else known[nearest].overlaps
            known[alpha] = solve(problem_at(alpha), start, accuracy=accuracy, guess=guess)
        return known[alpha]

    def response_passes_1(start, name, alphas, rising):
        for low, high in pairwise(alphas):
            below, above = (getattr(solution(start, a), name) - 1 for a in (low, high))
            if (below < 0 < above) if rising else (above < 0 < below):
                return brentq(lambda a: getattr(solution(start, a), name) - 1, low, high, rtol=1e-6)
        return np.nan

    semantic_birth = response_passes_1("uninformed", "response_theta", grid, rising=True)
    positional_birth = response_passes_1("uninformed", "response_m", grid, rising=True)
    semantic = [1.01 * semantic_birth, *grid[grid > 1.01 * semantic_birth]]
    positional = [1.01 * positional_birth]
    for alpha in grid[grid > 1.01 * positional_birth]:
        if solution("positional", alpha).collapsed:
            break
        positional.append(alpha)
    positional_end = np.nan
    if positional[-1] < alpha_max:
        positional_end = response_passes_1("uninformed", "response_m", [positional[-1], alpha], rising=False)
        if np.isnan(positional_end):  # the branch is lost by a jump
            positional_end = _bisect(lambda a: solution("positional", a).collapsed, positional[-1], alpha, accuracy)
    return BranchLimits(
        semantic_birth=semantic_birth,
        semantic_stable=response_passes_1("semantic", "response_m", semantic, rising=False),
        positional_birth=positional_birth,
        positional_end=positional_end,
        positional_unstable=response_passes_1("positional", "response_theta", positional, rising=True),
    )


def _family(omega, sigma, lam, A):
    return lambda alpha: PositionalSemantic(alpha=float(alpha), omega=omega, sigma=sigma, lam=lam, A=A)


def _between(low, high, alpha):
    """A step into an open bracket: a factor from alpha while one side is unexplored, else the geometric middle."""
    if low == RANGE[0]:
        return max(alpha / 1.4, low * 1.0001)
    if high == RANGE[1]:
        return min(alpha * 1.4, high * 0.9999)
    return float(np.sqrt(low * high))


def _bisect(lost, low, high, accuracy):
    """Smallest alpha, to relative accuracy, at which ``lost`` is true; false at low and true at high."""
    while high - low > accuracy * low:
        middle = (low + high) / 2
        low, high = (low, middle) if lost(middle) else (middle, high)
    return high
