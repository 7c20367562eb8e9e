"""One update of the state evolution of Part I, and its iteration to a fixed point on one quadrature rule.

:mod:`attn_lib.theory.positional_semantic` states the equations and refines the rule.
"""

from typing import NamedTuple

import numpy as np

from attn_lib.fixed_point import ConvergenceError, anderson
from attn_lib.theory.cavity import Averages, cavity_averages

__all__ = ["Hats", "Overlaps", "State", "conjugates", "iterate", "responses", "train_loss", "updated"]


class Overlaps(NamedTuple):
    """Order parameters: q = sigma^2 Q.Q/d, m = 1_d.Q/d, theta = sigma^2 Q.Q*/d, response V (all >= 0)."""

    q: float
    m: float
    theta: float
    V: float


class Hats(NamedTuple):
    """Conjugate order parameters."""

    q_hat: float
    m_hat: float
    theta_hat: float
    V_hat: float


class State(NamedTuple):
    """A fixed point on one rule; ``values`` are the six numbers whose accuracy is judged, secants those of anderson."""

    overlaps: Overlaps
    hats: Hats
    averages: Averages
    residual: float
    n_iter: int
    values: dict
    secants: tuple


def conjugates(problem, overlaps, a):
    """Conjugate order parameters from the averages a at the overlaps: the first half of an update.

    Parameters
    ----------
    problem : PositionalSemantic
    overlaps : Overlaps
    a : Averages

    Returns
    -------
    Hats
    """
    alpha, rho = problem.alpha, problem.rho
    V_hat = -alpha * a.g_zeta / np.sqrt(overlaps.q - overlaps.theta**2 / rho)
    return Hats(
        q_hat=alpha * a.g_g,
        m_hat=alpha * np.sqrt(2) * a.g_u,
        theta_hat=(alpha * a.g_teacher + overlaps.theta * V_hat) / rho,
        V_hat=V_hat,
    )


def updated(problem, hats, V_max=np.inf):
    """New overlaps from the conjugates: the second half of an update.

    Parameters
    ----------
    problem : PositionalSemantic
    hats : Hats
    V_max : float, optional
        A response above it, or undefined, is replaced by it.

    Returns
    -------
    Overlaps

    Raises
    ------
    FloatingPointError
        When lambda + sigma^2 V_hat is not positive and V_max infinite.
    """
    sigma2, rho = problem.sigma**2, problem.rho
    D = max(problem.lam + sigma2 * hats.V_hat, sigma2 / V_max)
    if D <= 0:
        raise FloatingPointError(f"lambda + sigma^2 V_hat = {D:.3g} must be positive")
    return Overlaps(
        q=sigma2 * (sigma2 * hats.q_hat + hats.m_hat**2 + sigma2 * rho * hats.theta_hat**2) / D**2,
        m=hats.m_hat / D,
        theta=sigma2 * rho * hats.theta_hat / D,
        V=sigma2 / D,
    )


def iterate(problem, overlaps, rule, secants=()):
    """Fixed point of the branch that the overlaps lie on (by which of m, theta is not zero).

    Parameters
    ----------
    problem : PositionalSemantic
    overlaps : Overlaps
        Starting point.
    rule : Rule
    secants : tuple, optional
        Of a State on the same branch close by, to which the overlaps belong.

    Returns
    -------
    State
        On the uninformed branch when the overlap asked for has flowed to zero, at Q = 0 when q has.

    Raises
    ------
    ConvergenceError
        ``partial`` is the best Overlaps seen.
    """
    rho = problem.rho
    branch = "semantic" if overlaps.theta else "positional" if overlaps.m else "uninformed" if overlaps.q else "zero"

    def to_log(o, order):
        free = {"semantic": [rest(o), order.theta], "positional": [rest(o), order.m], "uninformed": [o.q], "zero": []}
        return np.log([o.V, *free[branch]])

    def rest(o):
        return o.q - o.theta**2 / rho

    def from_log(x):
        V, q, overlap = map(float, [*np.exp(x), 1e-12 * rho, 0.0][:3])
        if branch == "semantic":
            return Overlaps(q=q + overlap**2 / rho, m=0.0, theta=overlap, V=V)
        return Overlaps(q=q, m=overlap if branch == "positional" else 0.0, theta=0.0, V=V)

    # averages jump where a node enters the ball that bounds the rule: a fixed point may lie in a jump
    edge = 10 * np.exp(-(rule.radius**2) / 2)
    latest = None  # the iteration ends on a point that it has just updated

    def update(x):
        nonlocal latest
        o = from_log(x)
        try:
            averages = cavity_averages(problem, o, rule)
        except RuntimeError as error:  # a proximal operator that cannot be solved
            raise FloatingPointError(str(error)) from error
        hats = conjugates(problem, o, averages)
        # a negative lambda + sigma^2 V_hat says that V is too small: it grows, which it does not at a fixed point
        new = updated(problem, hats, V_max=4 * o.V)
        latest = o, averages, hats, new
        # an update that overshoots through zero only shrinks the overlap: no fixed point is added or lost
        return to_log(new, order=new._replace(m=max(new.m, 0.3 * o.m), theta=max(new.theta, 0.3 * o.theta)))

    def vanishing(x):
        o = from_log(x)
        without_overlap = max(o.theta / np.sqrt(rho * o.q), o.m / np.sqrt(o.q)) < 0.05
        return branch != "zero" and (untrained(o) or (without_overlap and branch != "uninformed"))

    def untrained(o):
        return o.q < 1e-6 * rho

    def run(x, stop, secants=()):
        try:
            return anderson(update, x, tol=1e-9, far=0.15, stop=stop, secants=secants)
        except ConvergenceError as error:
            if error.partial.residual > edge:
                raise ConvergenceError(f"{problem}, {branch} branch: {error}", from_log(error.partial.x)) from error
            update(error.partial.x)
            return error.partial

    found = run(to_log(overlaps, overlaps), vanishing, secants)
    if vanishing(found.x):
        o = from_log(found.x)
        smaller = Overlaps(q=0.0 if untrained(o) else o.q, m=0.0, theta=0.0, V=o.V)
        ended = iterate(problem, smaller, rule)
        # born here or ended? The response of the point with one overlap less decides
        if branch == "uninformed" or responses(problem, ended)[branch == "semantic"] < 1:
            return ended._replace(n_iter=ended.n_iter + found.n_iter)
        found = run(found.x, None)
    o, averages, hats, again = latest
    values = {
        **o._asdict(),
        "train_loss": train_loss(problem, o, hats, averages.moreau),
        "test_error": averages.loss_at_cavity,
    }
    residual = max(abs(b - a) for a, b in zip(o, again, strict=True))
    secants = found.secants if branch != "zero" else ()  # of one unknown; with q > 0 the next search will have two
    return State(o, hats, averages, residual, found.n_iter, values, secants)


def train_loss(problem, o, hats, moreau):
    """Minimum of the empirical risk divided by d: the potential whose stationary points the state evolution finds.

    Parameters
    ----------
    problem : PositionalSemantic
    o : Overlaps
    hats : Hats
    moreau : float
        Mean Moreau value at the overlaps.

    Returns
    -------
    float
    """
    sigma2, rho = problem.sigma**2, problem.rho
    D = problem.lam + sigma2 * hats.V_hat
    return (
        problem.alpha * moreau
        - (hats.V_hat * o.q - hats.q_hat * o.V) / 2
        + o.m * hats.m_hat
        + o.theta * hats.theta_hat
        - (sigma2 * hats.q_hat + hats.m_hat**2 + sigma2 * rho * hats.theta_hat**2) / (2 * D)
    )


def responses(problem, state):
    """Linear responses (d m_new / d m, d theta_new / d theta), each nan where that overlap is not zero.

    Parameters
    ----------
    problem : PositionalSemantic
    state : State

    Returns
    -------
    tuple of float
    """
    (q, m, theta, _), a, alpha, rho = state.overlaps, state.averages, problem.alpha, problem.rho
    D, spread = problem.lam + problem.sigma**2 * state.hats.V_hat, np.sqrt(q - theta**2 / rho)
    response_m = 2 * alpha * a.gu_zetau / (spread * D)
    hat = (alpha * a.g_teacher_teacher_zeta / (rho * spread) + state.hats.V_hat) / rho
    return (np.nan if m else response_m, np.nan if theta else problem.sigma**2 * rho * hat / D)
