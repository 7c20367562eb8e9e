"""Where the positional and the semantic branch of Part I are born, end, and gain or lose stability."""

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from attn_lib.problems import PositionalSemantic
from attn_lib.theory.positional_semantic import solve

__all__ = ["ALPHA_RANGE", "BranchLimits", "branch_limits", "warm_solver"]

ALPHA_RANGE = (0.02, 40.0)  # of sample complexities searched for transitions


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


def branch_limits(omega, *, sigma=0.5, lam=0.01, A=PositionalSemantic.A, accuracy=1e-4, alpha_max=20.0, n_scan=25):
    r"""Where each branch is born, ends and changes its stability.

    The branches leave the uninformed point m = theta = 0 where its response to an infinitesimal overlap,

    .. math:: \frac{\partial m_{new}}{\partial m} \quad\text{or}\quad \frac{\partial\theta_{new}}{\partial\theta},

    passes 1; a branch is stable against the other overlap while that response, taken on the branch, is below 1. The
    positional branch is followed until it collapses, continuously (at that point) or by a jump (found by bisection).

    Parameters
    ----------
    omega, sigma, lam, A, accuracy
        As in :func:`~attn_lib.theory.transitions.alpha_c`.
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
    grid = np.geomspace(ALPHA_RANGE[0], alpha_max, n_scan)
    solution = warm_solver(PositionalSemantic(alpha=1.0, omega=omega, sigma=sigma, lam=lam, A=A), accuracy)

    def response_passes_1(start, name, alphas, rising):
        for low, high in pairwise(alphas):
            below, above = (getattr(solution(start, a), name) - 1 for a in (low, high))
            if (below < 0 < above) if rising else (above < 0 < below):
                return brentq(lambda a: getattr(solution(start, a), name) - 1, low, high, rtol=0.1 * accuracy)
        return np.nan

    semantic_birth = response_passes_1("uninformed", "response_theta", grid, rising=True)
    positional_birth = response_passes_1("uninformed", "response_m", grid, rising=True)
    semantic = [1.05 * semantic_birth, *grid[grid > 1.05 * semantic_birth]]
    positional = [1.05 * positional_birth]
    for alpha in grid[grid > 1.05 * positional_birth]:
        if solution("positional", alpha).collapsed:
            break
        positional.append(alpha)
    positional_end = np.nan
    if positional[-1] < alpha_max:
        positional_end = response_passes_1("uninformed", "response_m", [positional[-1], alpha], rising=False)
        if np.isnan(positional_end):  # the branch is lost by a jump
            positional_end = _bisect(lambda a: solution("positional", a).collapsed, positional[-1], alpha, accuracy)
        if 0.97 * positional_end > positional[-1]:
            positional.append(0.97 * positional_end)
    return BranchLimits(
        semantic_birth=semantic_birth,
        semantic_stable=response_passes_1("semantic", "response_m", semantic, rising=False),
        positional_birth=positional_birth,
        positional_end=positional_end,
        positional_unstable=response_passes_1("positional", "response_theta", positional, rising=True),
    )


def warm_solver(problem, accuracy):
    """Solutions along alpha, each remembered and begun from the nearest alpha at which the branch is known to exist.

    Parameters
    ----------
    problem : PositionalSemantic
        Its alpha does not matter.
    accuracy : float
        As in :func:`~attn_lib.theory.positional_semantic.solve`.

    Returns
    -------
    function
        (start, alpha) to Solution.
    """
    known = {}

    def solution(start, alpha):
        if (start, alpha) not in known:
            alive = [a for branch, a in known if branch == start and not known[branch, a].collapsed]
            nearest = min(alive, key=lambda a: abs(np.log(a / alpha)), default=None)
            guess = None if nearest is None else known[start, nearest].overlaps
            known[start, alpha] = solve(replace(problem, alpha=float(alpha)), start, accuracy=accuracy, guess=guess)
        return known[start, alpha]

    return solution


def _bisect(lost, low, high, accuracy):
    """Smallest alpha, to relative accuracy, at which ``lost`` is true; false at low and true at high."""
    while high - low > accuracy * low:
        middle = (low + high) / 2
        low, high = (low, middle) if lost(middle) else (middle, high)
    return high
