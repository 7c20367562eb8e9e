r"""Where the positional and the semantic solution exchange their roles as the sample complexity grows.

- :func:`alpha_c`: the train losses of the two branches cross, and with them the global minimum.
- :func:`alpha_l`: the semantic test error falls below that of the linear positional baseline.
- :func:`locate_alpha_c`, :func:`locate_alpha_l`: the same with an estimate of the error.
- :func:`branch_limits`: where each branch is born, ends, and gains or loses stability.

By the envelope theorem :math:`\partial_\alpha(\text{train loss})` is the mean Moreau value, a by-product of each
solution, so the crossing is found by Newton's method without a numerical derivative.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from attn_lib._checks import check_number
from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import PositionalSemantic
from attn_lib.theory.branches import ALPHA_RANGE, BranchLimits, branch_limits, warm_solver
from attn_lib.theory.positional_semantic import linear_baseline, solve

__all__ = [
    "BranchLimits",
    "NoTransition",
    "Transition",
    "alpha_c",
    "alpha_l",
    "branch_limits",
    "locate_alpha_c",
    "locate_alpha_l",
    "loss_difference",
]

DEFAULT_A = PositionalSemantic.A


class NoTransition(ValueError):
    """The transition asked for does not happen in the range of sample complexities searched."""


class Transition(NamedTuple):
    """A sample complexity and the numerical error to expect: that of the quantity that crosses over its slope."""

    alpha: float
    error: float


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


def alpha_c(omega, *, sigma=0.5, lam=0.01, A=DEFAULT_A, accuracy=3e-5, guess=1.0):
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
    See :func:`locate_alpha_c`; at the default accuracy better than 1e-3.

    Source
    ------
    arXiv 2402.03902, the phase transition; the published 1.241 at omega = 0.3 comes from a coarser quadrature.

    Examples
    --------
    >>> round(alpha_c(omega=0.3), 3)
    1.252
    """
    return locate_alpha_c(omega, sigma=sigma, lam=lam, A=A, accuracy=accuracy, guess=guess).alpha


def locate_alpha_c(omega, *, sigma=0.5, lam=0.01, A=DEFAULT_A, accuracy=3e-5, guess=1.0):
    r"""The transition :func:`alpha_c` with the error to expect,

    .. math:: \delta\alpha_c = (\delta L_{semantic}+\delta L_{positional})\,/\,|\Delta\mathcal M|,

    where :math:`\delta L` are the quadrature errors of the two losses, :math:`\Delta\mathcal M` the slope of their
    difference.

    Parameters
    ----------
    omega, sigma, lam, A, accuracy, guess
        As in :func:`alpha_c`.

    Returns
    -------
    Transition

    Raises
    ------
    NoTransition
        As :func:`alpha_c`.

    Accuracy
    --------
    The error is an upper estimate: each loss is charged with the largest relative error among all order parameters.
    """
    problem_at = _family(omega, sigma, lam, A)
    _require_semantic_part(problem_at)
    check_number("guess", guess, "a finite number > 0", lambda v: v > 0)
    low, high = ALPHA_RANGE
    alpha, near, close, neither = float(np.clip(guess, *ALPHA_RANGE)), None, False, False
    for _ in range(60):
        neither_below = neither
        near = loss_difference(problem_at(alpha), accuracy=accuracy if close else max(accuracy, 1e-4), near=near)
        both = not (near.semantic.collapsed or near.positional.collapsed)
        neither = near.semantic.collapsed and near.positional.collapsed  # both are born at larger alpha
        if neither_below and near.value <= 0 and not (both or neither):
            raise NoTransition(f"omega = {omega!r}: no positional branch up to alpha = {alpha:.4g}, nothing to cross")
        if near.value > 0 or neither:
            low = alpha
        else:
            high = alpha
        newton = alpha - near.value / near.slope if both and near.slope < 0 else np.nan
        if both and close and abs(newton - alpha) < 1e-4 * alpha:  # the next step would be of the order of its square
            return Transition(float(newton), near.error / abs(near.slope))
        close = both and abs(newton - alpha) < 0.05 * alpha
        if high - low < 1e-6 * alpha:
            break
        last, alpha = alpha, newton if low < newton < high else _between(low, high, alpha)
        if abs(alpha - last) < 1e-9 * last:  # the end of the range
            break
    raise NoTransition(f"omega = {omega!r}: no crossing of existing branches for alpha in {ALPHA_RANGE}")


def alpha_l(omega, *, sigma=0.5, lam=0.01, A=DEFAULT_A, accuracy=3e-5, guess=1.0):
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
    See :func:`locate_alpha_l`; at the default accuracy better than 1e-4.

    Source
    ------
    arXiv 2402.03902, the comparison with linear attention; published 1.451 at omega = 0.3, from a coarser quadrature.

    Examples
    --------
    >>> round(alpha_l(omega=0.3), 3)
    1.492
    """
    return locate_alpha_l(omega, sigma=sigma, lam=lam, A=A, accuracy=accuracy, guess=guess).alpha


def locate_alpha_l(omega, *, sigma=0.5, lam=0.01, A=DEFAULT_A, accuracy=3e-5, guess=1.0):
    r"""The sample complexity :func:`alpha_l` with the error to expect,

    .. math:: \delta\alpha_l = \delta\epsilon_g \,/\, |\partial_\alpha\epsilon_g|,

    where :math:`\delta\epsilon_g` is the quadrature error of the semantic test error.

    Parameters
    ----------
    omega, sigma, lam, A, accuracy, guess
        As in :func:`alpha_c`.

    Returns
    -------
    Transition

    Raises
    ------
    NoTransition
        As :func:`alpha_l`.

    Accuracy
    --------
    The error is an upper estimate, as in :func:`locate_alpha_c`.
    """
    problem_at = _family(omega, sigma, lam, A)
    _require_semantic_part(problem_at)
    target = linear_baseline(problem_at(1.0)).test_error
    rough, solution = (warm_solver(problem_at(1.0), a) for a in (max(accuracy, 1e-3), accuracy))

    def excess(alpha, solution=rough):
        return solution("semantic", alpha).test_error / target - 1

    low = high = float(np.clip(guess, *ALPHA_RANGE))
    if excess(low) < 0:
        while excess(low := low / 1.3) < 0:
            high = low
            if low < ALPHA_RANGE[0]:
                raise NoTransition(f"omega = {omega!r}: semantic attention beats the baseline wherever it exists")
        high = low * 1.3
    else:
        while excess(high := high * 1.3) > 0:
            low = high
            if high > ALPHA_RANGE[1]:
                raise NoTransition(f"omega = {omega!r}: semantic attention does not beat the baseline in {ALPHA_RANGE}")
        low = high / 1.3
    root = float(brentq(excess, low, high, rtol=1e-3))
    other = 1.01 * root
    for _ in range(20):
        found = solution("semantic", root)
        if found.collapsed:
            raise NoTransition(f"omega = {omega!r}: the semantic branch does not exist at alpha = {root:.4g}")
        slope = (excess(other, solution) - excess(root, solution)) / (other - root)
        step = -excess(root, solution) / slope
        other, root = root, root + step
        if abs(step) < 1e-4 * root:  # the next step of the secant method would be far smaller
            return Transition(root, found.quadrature_error["test_error"] / target / abs(slope))
    raise ConvergenceError(f"omega = {omega!r}: alpha_l not located, last at {root:.6g}", root)


def _family(omega, sigma, lam, A):
    return lambda alpha: PositionalSemantic(alpha=float(alpha), omega=omega, sigma=sigma, lam=lam, A=A)


def _require_semantic_part(problem_at):
    if problem_at(1.0).omega == 1:
        raise NoTransition("omega = 1: the target has no semantic part, so there is no semantic branch")


def _between(low, high, alpha):
    """A step into an open bracket: a factor from alpha while one side is unexplored, else the geometric middle."""
    if low == ALPHA_RANGE[0]:
        return max(alpha / 1.4, low * 1.0001)
    if high == ALPHA_RANGE[1]:
        return min(alpha * 1.4, high * 0.9999)
    return float(np.sqrt(low * high))
