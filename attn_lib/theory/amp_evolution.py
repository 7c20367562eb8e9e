r"""State evolution of message passing, iteration by iteration, and of the step between successive iterates.

**One time.** With the averages of :mod:`attn_lib.theory.cavity` at (q, m, theta, V) of iteration t,

.. math::

    D &= (1-\gamma)(\lambda+\sigma^2\hat V) + \gamma\,\sigma^2/V, \qquad V' = \sigma^2/D, \qquad
    \theta' = \sigma^2\rho\,\hat\theta/D, \\
    m' &= (1-\gamma)\,\hat m/D + \gamma\,m, \qquad
    q' = \sigma^4(\hat q+\rho\,\hat\theta^2)/D^2 + \sigma^2 m'^2 .

The damping :math:`\gamma`, the weight of the old value, acts on D and on m only. At :math:`\gamma=0` this is one sweep
of :mod:`attn_lib.theory.iteration`; the fixed points do not depend on it.

**Two times.** The cavity fields of successive iterations share the teacher fields, and their noises are correlated. Let
:math:`\delta` be the mean square of the difference of the noises of :math:`Q^{t+1}` and :math:`Q^t`, times
:math:`\sigma^2`. Then

.. math::

    \delta' = \sigma^4\alpha\,E\Big|\frac{g^{t+1}}{D^{t+1}}-\frac{g^t}{D^t}\Big|^2, \qquad
    \frac{\sigma^2}{d}|Q^{t+1}-Q^t|^2 \to \sigma^2(m^{t+1}-m^t)^2+\frac{(\theta^{t+1}-\theta^t)^2}{\rho}+\delta .

Where the prox jumps, :math:`E|g^{t+1}-g^t|^2` is of order :math:`\sqrt\delta`: iterates do not settle, even where the
order parameters do.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from attn_lib import proximal
from attn_lib._checks import check_integer, check_number
from attn_lib.fixed_point import ConvergenceError
from attn_lib.theory._checks import check_overlaps
from attn_lib.theory.cavity import Rule, cavity_averages, target_diagonal
from attn_lib.theory.iteration import Overlaps, conjugates

__all__ = ["Evolution", "Plateau", "evolve", "first_overlaps", "plateau"]

_RULE = Rule(n_teacher=9, n_inner=14, step=1.1, radius=5.35)
_SCRAMBLES = 8


@dataclass(frozen=True, kw_only=True)
class Evolution:
    r"""Order parameters of message passing in the limit of large d.

    Parameters
    ----------
    problem : PositionalSemantic
    damping : float
    q, m, theta, V : array (t,)
        Of the iterates t = 0, ..., n_iter.
    step, step_error : array (t - 1,)
        Limit of :math:`\sigma^2|Q^{t+1}-Q^t|^2/d`, and its standard error over scrambled Sobol sets.
    quadrature_error : float
        Largest relative change of q, m, theta or V at any t when the quadrature is refined.
    """

    problem: object
    damping: float
    q: np.ndarray
    m: np.ndarray
    theta: np.ndarray
    V: np.ndarray
    step: np.ndarray
    step_error: np.ndarray
    quadrature_error: float


class Plateau(NamedTuple):
    r"""Stationary two-time state: the step :math:`\sigma^2|Q^{t+1}-Q^t|^2/d`, the fraction of samples that change wells
    between successive iterations, and the standard errors of both."""

    step: float
    step_error: float
    flips: float
    flips_error: float


def first_overlaps(problem, start, *, signal, noise, V):
    """Overlaps of Q^0 = signal * direction + noise * N(0, I_d).

    Parameters
    ----------
    problem : PositionalSemantic
    start : {"semantic", "positional"}
        Direction Q* or 1_d.
    signal, noise : float
        signal >= 0, noise > 0.
    V : float
        Response of the first iteration, > 0.

    Returns
    -------
    Overlaps

    Raises
    ------
    ValueError
        Unknown start, or numbers out of range.
    """
    if start not in ("semantic", "positional"):
        raise ValueError(f"start = {start!r}: must be one of ('semantic', 'positional')")
    m, theta = (0.0, problem.rho * signal) if start == "semantic" else (signal, 0.0)
    overlaps = Overlaps(q=problem.rho * (signal**2 + noise**2), m=m, theta=theta, V=V)
    check_overlaps(overlaps, problem.rho)
    return overlaps


def evolve(problem, overlaps, *, n_iter, damping=0.7, log2_points=12):
    """State evolution of message passing from given overlaps of Q^0, which is independent of the data.

    Parameters
    ----------
    problem : PositionalSemantic
    overlaps : Overlaps
        Of Q^0, with the response V of the first iteration; m = 0 or theta = 0.
    n_iter : int
        >= 1.
    damping : float
        In [0, 1).
    log2_points : int
        Binary logarithm of the number of points in each of the eight Sobol sets.

    Returns
    -------
    Evolution

    Raises
    ------
    ValueError
        Damping or n_iter out of range, or m and theta both nonzero.
    FloatingPointError
        When D is not positive at some t: the iteration diverges.

    Accuracy
    --------
    About 1e-4 for the order parameters (see ``quadrature_error``), a few percent for the step (see ``step_error``).

    Source
    ------
    The two-time form is that of Bolthausen (2014) and of Bayati and Montanari (2011), who ask for a smoother prox.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> problem = PositionalSemantic(alpha=1.5, omega=0.3)
    >>> start = first_overlaps(problem, "semantic", signal=0.3, noise=0.3, V=12.5)
    >>> evolve(problem, start, n_iter=2).theta.round(3)
    array([0.075, 0.112, 0.119])
    """
    check_integer("n_iter", n_iter, 1, 10_000)
    check_number("damping", damping, "a number in [0, 1)", lambda v: 0 <= v < 1)
    check_integer("log2_points", log2_points, 1, 20)
    check_overlaps(overlaps, problem.rho)
    coarse, path = (_path(problem, overlaps, n_iter, damping, rule) for rule in (_RULE, _RULE.refined()))
    fine = np.array(path)
    change = np.abs(fine - np.array(coarse)).max(axis=0) / np.abs(fine).max(axis=0).clip(1e-300)
    steps = np.array([_steps(problem, path, uniform) for uniform in _sobol(log2_points)])
    return Evolution(
        problem=problem,
        damping=damping,
        **dict(zip(Overlaps._fields, fine.T, strict=True)),
        step=steps.mean(axis=0),
        step_error=steps.std(axis=0, ddof=1) / np.sqrt(len(steps)),
        quadrature_error=float(change.max()),
    )


def plateau(problem, overlaps, *, log2_points=12, n_iter=40):
    r"""Stationary step of message passing at a fixed point of state evolution.

    .. math:: \delta = \alpha V^2\,E|g(w_1)-g(w_2)|^2, \qquad w_1-w_2 \text{ of variance } \delta \text{ per field}

    Iterated on each Sobol set from independent noises. A finite set makes the iteration jitter, flip by flip; the last
    quarter of it is averaged.

    Parameters
    ----------
    problem : PositionalSemantic
    overlaps : Overlaps
        A fixed point, from :func:`attn_lib.theory.positional_semantic.solve`.
    log2_points : int
        As in :func:`evolve`.
    n_iter : int
        Multiple of 4.

    Returns
    -------
    Plateau

    Raises
    ------
    ConvergenceError
        The last two quarters differ by more than 5%, three standard errors and 1e-4 q together; ``partial`` is their
        pair of means.

    Accuracy
    --------
    The errors given. Flips must be seen: the default sets together resolve a fraction of them down to about 1e-4.
    """
    check_integer("n_iter / 4", n_iter / 4 if n_iter % 4 else n_iter // 4, 1, 10_000)
    check_integer("log2_points", log2_points, 1, 20)
    check_overlaps(overlaps, problem.rho)
    chains = np.array([_chain(problem, overlaps, n_iter, uniform) for uniform in _sobol(log2_points)])
    *_, before, last = chains.reshape(len(chains), 4, n_iter // 4, 2).mean(axis=2).swapaxes(0, 1)
    (step, flips), errors = last.mean(axis=0), last.std(axis=0, ddof=1) / np.sqrt(len(last))
    earlier = before[:, 0].mean()
    if not abs(step - earlier) <= 0.05 * step + 3 * errors[0] + 1e-4 * overlaps.q:
        raise ConvergenceError(f"{problem}: step of message passing {earlier:.2e}, later {step:.2e}", (earlier, step))
    return Plateau(*map(float, (step, errors[0], flips, errors[1])))


def _chain(problem, overlaps, n_iter, uniform):
    """Step and fraction of flips in every iteration of the two-time map, (n_iter, 2)."""
    delta, chain = 2 * _noise(problem, overlaps), []
    for _ in range(n_iter):
        first, second = _pair(problem, overlaps, overlaps, delta, uniform)
        delta = problem.alpha * overlaps.V**2 * ((first.g - second.g) ** 2).sum(axis=0).mean()
        chain.append((delta, _changed_wells(problem, first, second, overlaps.V)))
    return chain


def _path(problem, overlaps, n_iter, damping, rule):
    rho, path = problem.rho, [overlaps]
    for t in range(n_iter):
        old = path[-1]
        hats = conjugates(problem, old, cavity_averages(problem, old, rule))
        D = (1 - damping) * (problem.lam + rho * hats.V_hat) + damping * rho / old.V
        if not D > 0:
            raise FloatingPointError(f"message passing diverges: D = {D:.3g} in iteration {t}")
        m = (1 - damping) * hats.m_hat / D + damping * old.m
        q = rho**2 * (hats.q_hat + rho * hats.theta_hat**2) / D**2 + rho * m**2
        path.append(Overlaps(*map(float, (q, m, rho**2 * hats.theta_hat / D, rho / D))))
    return path


def _sobol(log2_points):
    """Scrambled Sobol sets in the unit cube: (h*_u, h*_v), the mean noise and the half difference (u, v each)."""
    for seed in range(_SCRAMBLES):
        yield qmc.Sobol(6, rng=np.random.default_rng(seed)).random_base2(log2_points).T


def _noise(problem, o):
    """sigma^2 times the mean square of the noise of Q, without its parts along 1_d and Q*."""
    return o.q - o.theta**2 / problem.rho - problem.rho * o.m**2


def _steps(problem, path, uniform):
    """The steps along a path on one Sobol set."""
    rho = problem.rho
    delta = _noise(problem, path[0]) + _noise(problem, path[1])  # the noise of Q^0 knows nothing of the data
    steps = []
    for t, (old, new) in enumerate(zip(path[:-1], path[1:], strict=True)):
        steps.append(rho * (new.m - old.m) ** 2 + (new.theta - old.theta) ** 2 / rho + delta)
        if t + 2 < len(path):
            first, second = _pair(problem, old, new, delta, uniform)
            moved = first.g * new.V - second.g * path[t + 2].V  # V' = sigma^2/D of the iteration
            delta = problem.alpha * (moved**2).sum(axis=0).mean()
    return steps


class _Side(NamedTuple):
    """Cavity fields, prox and g of one of two iterations, in the coordinates u, v: (2, N) each; T is shared."""

    w: np.ndarray
    z: np.ndarray
    g: np.ndarray
    T: tuple


def _pair(problem, old, new, delta, uniform):
    """Both sides of a pair of cavity fields whose noises have the covariance that delta implies."""
    rho, sigma = problem.rho, problem.sigma
    normal = ndtri(uniform)
    star = np.sqrt(rho) * normal[:2]
    T = target_diagonal(problem, *star)
    spreads = [np.sqrt(o.q - o.theta**2 / rho) for o in (old, new)]
    shared = rho * old.m * new.m + (_noise(problem, old) + _noise(problem, new) - delta) / 2
    c = np.clip(shared / (spreads[0] * spreads[1]), -1, 1)
    common, apart = np.sqrt((1 + c) / 2) * normal[2:4], np.sqrt((1 - c) / 2) * normal[4:]
    sides = []
    for o, spread, zeta in zip((old, new), spreads, (common - apart, common + apart), strict=True):
        w = o.theta / rho * star + spread * zeta
        w[0] += np.sqrt(2) * o.m
        z = np.array(proximal.prox(*w, *T, o.V, sigma)[:2])
        sides.append(_Side(w, z, (z - w) / o.V, T))
    return sides


def _changed_wells(problem, first, second, V):
    """Fraction of samples whose second prox is not where the well of the first one moves to."""
    followed = np.array(proximal.descend(*first.z, *second.w, *first.T, V, problem.sigma))
    return float((np.hypot(*(followed - second.z)) > 1e-6).mean())
