r"""State evolution of the positional/semantic attention layer (arXiv 2402.03902).

In the limit :math:`d\to\infty` at fixed :math:`\alpha=n/d` a minimum of the empirical risk is described by four
numbers: :math:`q=\sigma^2|Q|^2/d`, the positional overlap :math:`m=1_d\cdot Q/d`, the semantic overlap
:math:`\theta=\sigma^2 Q\cdot Q^\star/d` and the response :math:`V`. They solve

.. math::

    \hat m &= \sqrt2\,\alpha E[g_u], \quad \hat q = \alpha E|g|^2, \quad
    \hat V = -\alpha E[g\cdot\zeta]/\sqrt{q-\theta^2/\rho}, \quad
    \hat\theta = (\alpha E[g\cdot h^\star] + \theta\hat V)/\rho, \\
    V &= \sigma^2/D, \quad m = \hat m/D, \quad \theta = \sigma^2\rho\,\hat\theta/D, \quad
    q = \sigma^2(\sigma^2\hat q + \hat m^2 + \sigma^2\rho\,\hat\theta^2)/D^2, \qquad D = \lambda+\sigma^2\hat V,

with :math:`\rho=\sigma^2` and the averages of :mod:`attn_lib.theory.cavity`.
"""

from dataclasses import dataclass

import numpy as np

from attn_lib.fixed_point import ConvergenceError
from attn_lib.gaussian import gaussian_ball
from attn_lib.proximal import attention_diagonal
from attn_lib.theory.cavity import Rule
from attn_lib.theory.iteration import Hats, Overlaps, iterate, responses

__all__ = ["Hats", "LinearBaseline", "Overlaps", "Solution", "linear_baseline", "solve"]

STARTS = ("positional", "semantic", "uninformed")
_COARSE = Rule(n_teacher=9, n_inner=14, step=1.1, radius=5.35)
_MAX_RULES = 8


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A fixed point of the state evolution with everything that is known about it.

    Attributes
    ----------
    problem : PositionalSemantic
    start : str
        The branch asked for.
    overlaps, hats : Overlaps, Hats
    train_loss : float
        Minimum of the empirical risk divided by d.
    test_error : float
        ``E|y - f|^2 / (2 d)`` on a fresh sample.
    moreau : float
        Mean of the smallest ``|z - w|^2 / (2 V) + l(z)``; equals d(train_loss)/d(alpha) (envelope theorem).
    response_m, response_theta : float
        Linear response of the update of m (theta) to m (theta) around this point when that overlap is zero here, else
        nan. The point is stable against the overlap when the response is below 1.
    collapsed : bool
        True when the branch asked for does not exist here: its overlap flowed to zero and ``overlaps`` are those of
        the uninformed point m = theta = 0, or of Q = 0 (q below 1e-11) when the ridge leaves no other minimum.
    residual : float
        Undamped: the largest absolute change of q, m, theta, V under one more update.
    n_iter : int
        Updates made, over all refinements of the quadrature.
    converged : bool
        Always True; a failure raises.
    rule : Rule
        The quadrature rule used.
    quadrature_error : dict
        Of q, m, theta, V, train_loss and test_error, absolute: twice the largest relative change of any of them since
        the next coarser rule, solved to its own fixed point (twice, since two rules may share part of an error).
    """

    problem: object
    start: str
    overlaps: Overlaps
    hats: Hats
    train_loss: float
    test_error: float
    moreau: float
    response_m: float
    response_theta: float
    collapsed: bool
    residual: float
    n_iter: int
    converged: bool
    rule: Rule
    quadrature_error: dict


def solve(problem, start="semantic", *, accuracy=1e-4, guess=None):
    r"""Fixed point of the state evolution on one branch.

    Anderson iteration in the logarithms of :math:`q-\theta^2/\rho`, V and the overlap of the branch, on quadrature
    rules refined until two successive ones agree to ``accuracy``.

    Parameters
    ----------
    problem : PositionalSemantic
    start : {"semantic", "positional", "uninformed"}
        Branch: theta > 0 and m = 0; m > 0 and theta = 0; or both zero.
    accuracy : float
        Largest relative quadrature error wanted for q, m, theta, V, train loss and test error, in [1e-8, 1e-2].
    guess : Overlaps, optional
        Where to begin, for instance the solution at a neighbouring alpha.

    Returns
    -------
    Solution

    Raises
    ------
    ValueError
        Unknown start, accuracy out of range.
    ConvergenceError
        No fixed point, or the accuracy not reached on the finest rule; ``partial`` is the last state.

    Accuracy
    --------
    ``accuracy`` by the estimate in ``quadrature_error``, an upper one. On one core a solution takes 0.1-0.2 s at 1e-4
    and 0.2-0.5 s at 1e-6; several times that near the end of a branch, where errors of the quadrature are magnified:
    5 s at 1e-4 within 1 % of it. Where the proximal operator has several jumps on a line (large V and q: sigma = 0.7,
    or lam = 0.001) it takes 1 s at 1e-4; for lam = 0.001 and alpha below 1 it takes 0.4 s at 1e-2 and 1 s at 1e-3, and
    an accuracy of 1e-4 is in general not reached, which raises; nor is it for the uninformed start at omega = 1, where
    1e-3 is. At extreme parameters (V sigma^2 of 1000 and more) a solution takes 20 s and more.

    Source
    ------
    arXiv 2402.03902, the state evolution of its main result for two tokens and rank one, rewritten with the teacher
    fields drawn first.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> solution = solve(PositionalSemantic(alpha=2.0, omega=0.3), "semantic")
    >>> round(solution.overlaps.theta, 3), solution.collapsed
    (0.158, False)
    """
    if start not in STARTS:
        raise ValueError(f"start = {start!r}: must be one of {STARTS}")
    if not 1e-8 <= accuracy <= 1e-2:
        raise ValueError(f"accuracy = {accuracy!r}: must be in [1e-8, 1e-2]")
    overlaps = _initial(problem, start) if guess is None else _on_branch(Overlaps(*guess), start)
    rule, previous, n_iter, secants = _COARSE, None, 0, ()
    for _ in range(_MAX_RULES):
        state = iterate(problem, overlaps, rule, secants)
        n_iter += state.n_iter
        if previous is not None:
            change = 2 * max(abs(v / previous.values[name] - 1) for name, v in state.values.items() if v)
            if change <= accuracy:
                return _solution(problem, start, rule, state, n_iter, change)
        previous, overlaps, rule, secants = state, state.overlaps, rule.refined(), state.secants
    raise ConvergenceError(f"{problem}, start {start!r}: accuracy {accuracy:.0e} not reached: {change:.1e}", state)


@dataclass(frozen=True, kw_only=True)
class LinearBaseline:
    """The best linear positional layer f_W(x) = W x: its 2 x 2 matrix W and its test error ``E|y - W x|^2 / (2 d)``."""

    W: np.ndarray
    test_error: float


def linear_baseline(problem):
    r"""Purely positional linear layer, trained on the raw tokens with :math:`n\gg1` samples.

    .. math::

        W = \omega A + (1-\omega)\,E\,\mathrm{softmax}(h^\star h^{\star\top}), \qquad
        \epsilon_{lin} = \tfrac{\sigma^2}{2} E|T-W|_F^2

    Parameters
    ----------
    problem : PositionalSemantic

    Returns
    -------
    LinearBaseline
        Does not depend on alpha: four coefficients are learned exactly from order d samples.

    Accuracy
    --------
    1e-10 relative (midpoint rule on an analytic integrand).

    Source
    ------
    arXiv 2402.03902, the linear attention baseline.
    """
    nodes, weight = gaussian_ball(0.15, 8.5, [True, False])
    S11, _ = attention_diagonal(*(np.sqrt(problem.rho) * nodes))
    mean = float((weight * S11).sum())
    variance = float((weight * (S11 - mean) ** 2).sum())
    softmax = np.array([[mean, 1 - mean], [1 - mean, mean]])
    return LinearBaseline(
        W=problem.omega * np.array(problem.A) + (1 - problem.omega) * softmax,
        test_error=2 * problem.sigma**2 * (1 - problem.omega) ** 2 * variance,
    )


def _solution(problem, start, rule, state, n_iter, change):
    response_m, response_theta = responses(problem, state)
    return Solution(
        problem=problem,
        start=start,
        overlaps=state.overlaps,
        hats=state.hats,
        train_loss=state.values["train_loss"],
        test_error=state.values["test_error"],
        moreau=state.averages.moreau,
        response_m=float(response_m),
        response_theta=float(response_theta),
        collapsed={
            "semantic": state.overlaps.theta,
            "positional": state.overlaps.m,
            "uninformed": state.overlaps.q > 1e-11,
        }[start]
        == 0,
        residual=state.residual,
        n_iter=n_iter,
        converged=True,
        rule=rule,
        quadrature_error={name: change * abs(value) for name, value in state.values.items()},
    )


def _initial(problem, start):
    """A point in the basin of the branch: overlaps of the size that is learned, V by the growth of V_hat with alpha."""
    rho = problem.rho
    V = rho / (problem.lam + 0.1 * rho**2 * problem.alpha)
    if start == "positional":
        return Overlaps(q=0.2 * rho, m=0.27, theta=0.0, V=V)
    return Overlaps(q=0.4 * rho, m=0.0, theta=0.5 * rho if start == "semantic" else 0.0, V=V)


def _on_branch(guess, start):
    """The guess with the overlap that the branch must have, however small it had become."""
    m = max(guess.m, 0.1 * np.sqrt(guess.q)) if start == "positional" else 0.0
    theta = max(guess.theta, 0.03 * np.sqrt(guess.q)) if start == "semantic" else 0.0
    return guess._replace(m=m, theta=theta)
