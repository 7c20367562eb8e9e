r"""State evolution of a single head of full rank (arXiv 2509.24914).

In the limit :math:`d\to\infty` at fixed :math:`\alpha=n/d^2` the minimum of the empirical risk is described by
:math:`m=\mathrm{tr}\,SS_0`, :math:`q=\mathrm{tr}\,S^2` and a response :math:`\Sigma`, with their conjugates the
stationary point of

.. math::

    \Phi = \tfrac14(\hat q\Sigma + 2\hat m m - \hat\Sigma q) + \alpha M(m, q, \Sigma)
    - \frac{\hat m^2}{4\hat\Sigma} J(\delta, \epsilon), \qquad
    \eta = \frac{\hat m}{\hat\Sigma}, \quad \delta = \frac{\sqrt{\hat q}}{\hat m}, \quad
    \epsilon = \frac{2\sqrt\kappa\lambda}{\hat m}.

The prior (:mod:`attn_lib.theory.spectral_prior`) maps the conjugates to the overlaps, the channel
(:mod:`attn_lib.theory.attention_channel`) the overlaps to the conjugates. At the fixed point :math:`\Phi` is the
minimum of the risk divided by d^2, training loss :math:`\alpha E\ell` plus penalty :math:`\sqrt\kappa\lambda\eta J_1`;
these two ways to it are compared at the end of every solution.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from attn_lib._checks import check_number, check_type
from attn_lib.problems import SingleHead
from attn_lib.theory.attention_channel import TwoTokenChannel
from attn_lib.theory.many_tokens import ManyTokenChannel
from attn_lib.theory.single_head_iteration import reach, refine, starting_point
from attn_lib.theory.spectral_prior import Hats, Overlaps, direct_prior, prior

__all__ = ["Hats", "Overlaps", "Solution", "channel_of", "least_kappa", "solve", "solve_direct", "test_error"]


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A fixed point of the state evolution with everything that is known about it.

    Attributes
    ----------
    problem : SingleHead
    overlaps, hats : Overlaps, Hats
        All overlaps are 0 when the penalty is so large that S = 0 is the minimum.
    eta, delta, epsilon : float
        The learned S is distributed as eta ReLU(S0 + delta Z - epsilon); as eta (S0 + delta Z), with epsilon None,
        when S was trained directly.
    rank : float
        rank(W)/d.
    test_error : float
        ``E sum_ab (y - A)_ab^2`` on a fresh sample, whose label is noisy.
    train_loss, penalty : float
        The two terms of the minimum of the empirical risk, divided by d^2.
    potential : float
        Their sum, computed from Phi.
    residual : float
        Undamped: the largest relative change of a conjugate under one more update.
    n_iter : int
        Updates made, over all refinements of the rule.
    converged : bool
        Always True; a failure raises.
    quadrature_error : dict
        Of m, q, Sigma, test_error, train_loss, penalty and rank, absolute, from the change since the next coarser
        rule, solved to its own fixed point.
    form : str
        "stein" or "derivative", the form of the channel's averages that was used.
    form_difference : float
        Largest relative difference of a conjugate between the two forms: the quadrature error where the prox does not
        jump, the contribution of the jumps where it does.
    """

    problem: object
    overlaps: Overlaps
    hats: Hats
    eta: float
    delta: float
    epsilon: float | None
    rank: float
    test_error: float
    train_loss: float
    penalty: float
    potential: float
    residual: float
    n_iter: int
    converged: bool
    quadrature_error: dict
    form: str
    form_difference: float


def solve(problem, *, accuracy=None, start=None):
    """Fixed point of the state evolution.

    Anderson iteration in the logarithms of the conjugates, on rules refined until two successive ones agree; where it
    fails, lam is lowered step by step from a large value.

    Parameters
    ----------
    problem : SingleHead
    accuracy : float, optional
        Largest relative error wanted of m, q, Sigma, test error, train loss, penalty and rank, as estimated from the
        last two rules, in [1e-7, 1e-1]. By default that of the channel: 1e-4 for two tokens, 2e-3 for more.
    start : Hats, optional
        Where to begin, for instance at the solution of a neighbouring problem; by default at the conjugates of S = 0.

    Returns
    -------
    Solution

    Raises
    ------
    ValueError
        accuracy or start out of range; kappa below the rank of the solution, where the formulas do not hold: the least
        kappa for which they do is named.
    ConvergenceError
        No fixed point (the last lam reached is named), or the accuracy is not reached on the finest rule; ``partial``
        is the last state.

    Accuracy
    --------
    ``accuracy`` by the estimate in ``quadrature_error``. For two tokens, lam = 0.01 and Delta = 0.5 a solution takes
    0.05-0.4 s of one core at 1e-4, also for a power law of 500 eigenvalues. For smaller lam near the interpolation
    threshold the prox jumps often: 1e-3 takes some seconds, and 1e-4 is in general not reached, which raises. Near
    perfect recovery the residual grows to 1e-16 divided by the squared distance from a multiple of S0.

    Source
    ------
    arXiv 2509.24914, main result on full-rank attention; derived in the chapter on learning curves.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> solution = solve(SingleHead(alpha=2.0, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5)))
    >>> round(solution.test_error, 4), round(solution.rank, 3)
    (0.0871, 0.704)
    """
    solution = _solution(problem, prior, accuracy, start)
    if solution.rank > problem.kappa + 1e-9:  # rounding
        raise ValueError(
            f"kappa = {problem.kappa!r}: must be at least {least_kappa(problem):.4f} here, the rank of the solution "
            f"(which is {solution.rank:.4f} when the width does not limit it); below, the formulas do not hold"
        )
    return solution


def least_kappa(problem):
    """The smallest width p/d at which the weights are no narrower than the rank of the solution.

    Parameters
    ----------
    problem : SingleHead
        Its kappa is ignored; its lam is kept, so that the penalty on S falls with kappa.

    Returns
    -------
    float
        0 if S = 0 at every width.

    Raises
    ------
    ConvergenceError
        No fixed point at some kappa.

    Accuracy
    --------
    1e-4.
    """
    channel = channel_of(problem).refined()
    last = starting_point(channel)

    def excess(kappa):
        nonlocal last
        state = reach(replace(problem, kappa=kappa), channel, prior, last)
        last = state.hats
        return state.values["rank"] - kappa

    return brentq(excess, 1e-6, 1.0, xtol=1e-5) if excess(1e-6) > 0 else 0.0


def solve_direct(problem, *, accuracy=None, start=None):
    r"""The same for a symmetric matrix S (of any sign) that is trained directly.

    .. math::

        \min_S \sum_\mu\sum_{ab}(y_{ab}-A_{ab})^2 + \lambda d|S|_F^2

    Parameters
    ----------
    problem : SingleHead
        Its ``lam`` is the ridge lambda of this risk; kappa plays no role.
    accuracy, start
        As in :func:`solve`.

    Returns
    -------
    Solution
        With rank 1 and penalty lambda q.

    Raises
    ------
    ValueError, ConvergenceError
        As :func:`solve`.

    Source
    ------
    Derived like the state evolution: without the constraint S >= 0 the prior is Gaussian.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> problem = SingleHead(alpha=0.1, lam=1e-5, Delta=0.0, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> o = solve_direct(problem).overlaps
    >>> round((1.5 - 2 * o.m + o.q) / 1.5, 2)  # without noise and ridge 1 - (T^2 + T - 2) alpha
    0.6
    """
    return _solution(problem, direct_prior, accuracy, start)


def test_error(problem, m, q):
    r"""Error on a fresh sample with noisy label, of a student with overlaps m and q.

    .. math::

        e(m, q) = E\sum_{ab}(\mathrm{softmax}(\beta_0z_0)-\mathrm{softmax}(\beta z))_{ab}^2, \qquad
        (z_0, z) \sim N\Big(0, C\begin{pmatrix}Q'&m\\m&q\end{pmatrix}\Big)

    Parameters
    ----------
    problem : SingleHead
        Of which target, Delta, n_tokens, beta and beta0 are used.
    m, q : float
        m = tr S S0 and q = tr S^2, with m^2 <= q Q0.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        m^2 > q Q0.

    Accuracy
    --------
    For two tokens 1e-7 where beta0^2 Q' and beta^2 q are up to 36, 5e-5 at 100, 1e-2 at 900. For more tokens 1e-3.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> problem = SingleHead(alpha=1.0, lam=0.01, Delta=0.0, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> test_error(problem, 1.5, 1.5)
    0.0
    """
    check_number("m", m, "a finite number", lambda v: True)
    least = m**2 / problem.target.second_moment
    check_number("q", q, f"a number >= m^2/Q0 = {least:.6g}", lambda v: v >= least * (1 - 1e-9))
    return channel_of(problem).test_error(m, q)


test_error.__test__ = False  # pytest: not a test


def channel_of(problem):
    """The channel of a problem, on the coarsest of its rules.

    Parameters
    ----------
    problem : SingleHead

    Returns
    -------
    TwoTokenChannel or ManyTokenChannel
    """
    check_type("problem", problem, SingleHead)
    return TwoTokenChannel(problem) if problem.n_tokens == 2 else ManyTokenChannel(problem)


def _solution(problem, prior, accuracy, start):
    channel = channel_of(problem)
    accuracy = channel.accuracy if accuracy is None else accuracy
    check_number("accuracy", accuracy, "a number in [1e-7, 1e-1]", lambda v: 1e-7 <= v <= 1e-1)
    if start is not None and not (len(start) == 3 and np.isfinite(start).all() and min(start) > 0):
        raise ValueError(f"start = {start!r}: must be Hats, three finite numbers > 0")
    state, changes = refine(problem, channel, prior, accuracy, start)
    values = {name: state.values[name] for name in ("rank", "test_error", "train_loss", "penalty")}
    return Solution(
        problem=problem,
        overlaps=state.prior.overlaps,
        hats=state.hats,
        eta=state.prior.eta,
        delta=state.prior.delta,
        epsilon=state.prior.epsilon,
        **values,
        potential=state.potential,
        residual=state.residual,
        n_iter=state.n_iter,
        converged=True,
        quadrature_error=changes,
        form=state.form,
        form_difference=state.form_difference,
    )
