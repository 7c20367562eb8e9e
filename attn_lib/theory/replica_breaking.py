r"""One step of replica-symmetry breaking for Part I, at zero temperature.

Minima are grouped: two of one group have the overlap :math:`q_1`, two of different groups :math:`q_0`. The Parisi
parameter y weighs groups by exp(-y times their risk). With the averages of :mod:`attn_lib.theory.nested_cavity`

.. math::

    \Phi(y) ={}& -\frac{\alpha}{y}\,E\log E_{\zeta_1}e^{-yM(w)} + m\hat m + \theta\hat\theta
    + \tfrac12\big[\hat q_1V - \hat Vq_1 + y(\hat q_1q_1-\hat q_0q_0)\big] \\
    & + \frac1{2y}\log\frac{D_0}{D} - \frac{\hat m^2+\sigma^2\rho\,\hat\theta^2+\sigma^2\hat q_0}{2D_0},
    \qquad D = \lambda+\sigma^2\hat V, \quad D_0 = D - y\sigma^2(\hat q_1-\hat q_0),

is stationary at

.. math::

    \hat q_1 &= \alpha E\langle|g|^2\rangle, \quad \hat q_0 = \alpha E|\langle g\rangle|^2, \quad
    \hat V = -\frac{\alpha E[\langle g\rangle\cdot\zeta_0]}{\sqrt{q_0-\theta^2/\rho}} + y(\hat q_1-\hat q_0), \\
    \hat m &= \alpha E[s\cdot\langle g\rangle], \quad
    \hat\theta = (\alpha E[\langle g\rangle\cdot h^\star] + \theta\,(\hat V-y(\hat q_1-\hat q_0)))/\rho, \\
    V &= \sigma^2/D, \quad q_1-q_0 = \sigma^4(\hat q_1-\hat q_0)/(D D_0), \quad
    m = \hat m/D_0, \quad \theta = \sigma^2\rho\,\hat\theta/D_0, \\
    q_0 &= \sigma^2(\hat m^2+\sigma^2\rho\,\hat\theta^2+\sigma^2\hat q_0)/D_0^2.

At y = 0 the value is the replica-symmetric one, and :math:`q_1-q_0` is the distance at which two independent replicas
settle (:mod:`attn_lib.theory.replicon`). The train loss of the ansatz is the largest value over y.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attn_lib._checks import check_integer, check_number
from attn_lib.fixed_point import ConvergenceError, anderson
from attn_lib.theory.cavity import cavity_averages
from attn_lib.theory.iteration import Overlaps
from attn_lib.theory.nested_cavity import nested_averages, shared_nodes

__all__ = ["BrokenHats", "BrokenOverlaps", "BrokenSolution", "solve_broken"]


_SMALLEST_DISTANCE = 1e-3  # of q1: below, too few outer nodes come close to a jump


class BrokenOverlaps(NamedTuple):
    """Overlaps of replicas in one group (q1) and in two (q0); m, theta, V as in the replica-symmetric theory."""

    q1: float
    q0: float
    m: float
    theta: float
    V: float


class BrokenHats(NamedTuple):
    """Conjugates: ``gap`` is q1_hat - q0_hat, ``V0_hat`` is V_hat - y gap, the response of a whole group."""

    q1_hat: float
    gap: float
    m_hat: float
    theta_hat: float
    V0_hat: float


@dataclass(frozen=True, kw_only=True)
class BrokenSolution:
    """A stationary point at one Parisi parameter.

    Attributes
    ----------
    problem : PositionalSemantic
    start : str
        The branch.
    y : float
    overlaps : BrokenOverlaps
    hats : BrokenHats
    train_loss : float
        The potential at this y, divided by d.
    complexity : float
        ``y**2`` times the derivative of the potential in y: the log of the number of groups at ``group_loss``,
        divided by d. Negative beyond the y at which the train loss is largest; nan at y = 0.
    group_loss : float
        Risk of the groups that this y selects, divided by d: train_loss + complexity / y.
    residual : float
        Undamped: the largest absolute change of q1, q0, m, theta, V under one more update.
    n_iter : int
    converged : bool
        Always True; a failure raises.
    """

    problem: object
    start: str
    y: float
    overlaps: BrokenOverlaps
    hats: BrokenHats
    train_loss: float
    complexity: float
    group_loss: float
    residual: float
    n_iter: int
    converged: bool


def solve_broken(symmetric, y, *, guess=None, log2_points=12, seed=0, n_line=10, tol=1e-5):
    """Stationary point at the Parisi parameter y, on the branch of a replica-symmetric solution.

    Parameters
    ----------
    symmetric : Solution
        Replica-symmetric solution, not collapsed; its quadrature rule serves the averages that do not need pairs.
    y : float
        Parisi parameter, >= 0, in inverse units of the loss of one sample.
    guess : BrokenOverlaps, optional
        Where to begin, for instance the solution at a neighbouring y.
    log2_points, seed : int
        Of the Sobol points of the outer average; solutions for several seeds show the random error.
    n_line : int
        Points per piece of a line of the inner average; at 6 the complexity is wrong for y > 200.
    tol : float
        Largest allowed undamped change of the logarithms of V, q1 - q0, q0 - theta**2 / rho and the overlap.

    Returns
    -------
    BrokenSolution

    Raises
    ------
    ValueError
        y < 0 or not finite, or a collapsed solution.
    ConvergenceError
        No fixed point, or q1 - q0 too small to be resolved (:func:`~attn_lib.theory.replicon.replicon` gives its
        order); ``partial`` is the last or best BrokenOverlaps seen.

    Accuracy
    --------
    At omega = 0, alpha = 0.65, y <= 400, one scrambling gives the train loss to about 1e-4 relative, q1 - q0 to a few
    percent; the complexity, a small difference of large terms that grow with y squared, is worse. 2-4 s on one core.

    Source
    ------
    Derived here, after Mezard, Parisi and Virasoro; arXiv 2402.03902 assumes replica symmetry.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> from attn_lib.theory.positional_semantic import solve
    >>> symmetric = solve(PositionalSemantic(alpha=0.65, omega=0.0), "positional", accuracy=1e-3)
    >>> broken = solve_broken(symmetric, 0.0, log2_points=8, tol=1e-3)
    >>> broken.overlaps.q0 < broken.overlaps.q1
    True
    """
    check_number("y", y, "0 or a number in [1e-3, 3e4]", lambda v: v == 0 or 1e-3 <= v <= 3e4)
    check_number("tol", tol, "a number in (0, 0.1]", lambda v: 0 < v <= 0.1)
    check_integer("n_line", n_line, 2, 200)
    if symmetric.collapsed or symmetric.start == "uninformed":
        raise ValueError(f"symmetric = {symmetric.start} solution: must be one of a branch that has not collapsed")
    problem, start, rho = symmetric.problem, symmetric.start, symmetric.problem.rho
    q, m, theta, V = symmetric.overlaps
    nodes = shared_nodes(log2_points, seed)
    known = BrokenOverlaps(q, q - 0.3 * (q - theta**2 / rho), m, theta, V) if guess is None else guess

    def to_log(o):
        overlap = [max(o.m, 1e-12)] if m else [max(o.theta, 1e-12)] if theta else []
        return np.log([o.V, o.q1 - o.q0, o.q0 - o.theta**2 / rho, *overlap])

    def from_log(x):
        V, distance, rest, overlap = map(float, [*np.exp(x), 0.0][:4])
        overlaps = (overlap, 0.0) if m else (0.0, overlap)
        q0 = rest + overlaps[1] ** 2 / rho
        return BrokenOverlaps(q0 + distance, q0, *overlaps, V)

    latest = None  # the iteration ends on a point that it has just updated

    def update(x):
        nonlocal latest
        o = from_log(x)
        averages = _averages(problem, o, y, symmetric.rule, nodes, n_line)
        hats = _conjugates(problem, o, averages)
        latest = o, averages, hats, _updated(problem, hats, y)
        return to_log(latest[-1])

    def merged(x):
        o = from_log(x)
        return o.q1 - o.q0 < _SMALLEST_DISTANCE * o.q1

    try:
        found = anderson(update, to_log(known), tol=tol, far=0.3, max_iter=100, stop=merged)
        if merged(found.x):
            raise ConvergenceError(f"q1 - q0 fell below {_SMALLEST_DISTANCE:.0e} q1, which is not resolved", found)
    except ConvergenceError as error:
        raise ConvergenceError(f"{problem}, {start} branch, y = {y}: {error}", from_log(error.partial.x)) from error
    o, averages, hats, new = latest
    train_loss, complexity = _potential(problem, o, hats, averages, y)
    return BrokenSolution(
        problem=problem,
        start=start,
        y=float(y),
        overlaps=o,
        hats=hats,
        train_loss=train_loss,
        complexity=complexity,
        group_loss=train_loss + complexity / y if y else np.nan,
        residual=max(abs(a - b) for a, b in zip(new, o, strict=True)),
        n_iter=found.n_iter,
        converged=True,
    )


def _averages(problem, o, y, rule, nodes, n_line):
    """The averages at y: replica-symmetric ones at q = q1 plus what the tilt adds to them."""
    plain = cavity_averages(problem, Overlaps(o.q1, o.m, o.theta, o.V), rule)
    change = nested_averages(problem, o, y, nodes, n_line)
    spread0, spread1 = (np.sqrt(q - o.theta**2 / problem.rho) for q in (o.q0, o.q1))
    return {
        "free": plain.moreau + change.free,
        "entropy": change.entropy,
        "spread": change.spread,
        "g_g": plain.g_g + change.g_g,
        # sums of odd functions, which vanish on the branch without that overlap
        "g_u": plain.g_u + change.g_u if o.m else 0.0,
        "g_teacher": plain.g_teacher + change.g_teacher if o.theta else 0.0,
        "response": plain.g_zeta / spread1 + change.g_zeta / spread0,
    }


def _conjugates(problem, o, a):
    alpha, rho = problem.alpha, problem.rho
    V0_hat = -alpha * a["response"]
    return BrokenHats(
        q1_hat=alpha * a["g_g"],
        gap=alpha * a["spread"],
        m_hat=alpha * np.sqrt(2) * a["g_u"],
        theta_hat=(alpha * a["g_teacher"] + o.theta * V0_hat) / rho,
        V0_hat=V0_hat,
    )


def _signal(problem, hats):
    sigma2, rho = problem.sigma**2, problem.rho
    return hats.m_hat**2 + sigma2 * rho * hats.theta_hat**2 + sigma2 * (hats.q1_hat - hats.gap)


def _updated(problem, hats, y):
    sigma2, rho = problem.sigma**2, problem.rho
    D0 = problem.lam + sigma2 * hats.V0_hat
    D = D0 + y * sigma2 * hats.gap
    if D0 <= 0:
        raise FloatingPointError(f"D_0 = {D0:.3g} must be positive")
    q0 = sigma2 * _signal(problem, hats) / D0**2
    distance = sigma2**2 * hats.gap / (D * D0)
    return BrokenOverlaps(q0 + distance, q0, hats.m_hat / D0, sigma2 * rho * hats.theta_hat / D0, sigma2 / D)


def _potential(problem, o, hats, a, y):
    """Train loss and complexity."""
    alpha, sigma2, distance = problem.alpha, problem.sigma**2, o.q1 - o.q0
    D0 = problem.lam + sigma2 * hats.V0_hat
    D = D0 + y * sigma2 * hats.gap
    V_hat, q0_hat = hats.V0_hat + y * hats.gap, hats.q1_hat - hats.gap
    log_ratio = np.log(D0 / D)
    train_loss = (
        alpha * a["free"]
        + o.m * hats.m_hat
        + o.theta * hats.theta_hat
        + (hats.q1_hat * o.V - V_hat * o.q1 + y * (hats.q1_hat * o.q1 - q0_hat * o.q0)) / 2
        + (log_ratio / (2 * y) if y else -sigma2 * hats.gap / (2 * D))
        - _signal(problem, hats) / (2 * D0)
    )
    if not y:
        return float(train_loss), np.nan
    complexity = alpha * a["entropy"] + y**2 * hats.q1_hat * distance / 2 - y * distance / (2 * o.V) - log_ratio / 2
    return float(train_loss), float(complexity)
