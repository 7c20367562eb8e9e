r"""Averages over the cavity field of one sample, the single hard integral of Part I.

The teacher fields :math:`h^\star\sim N(0,\rho I_2)` are drawn first, then the cavity field

.. math::

    w = m\,s + (\theta/\rho)\,h^\star + \sqrt{q-\theta^2/\rho}\;\zeta, \qquad z = \mathrm{prox}(w), \qquad g = (z-w)/V,

in the coordinates u, v of :mod:`attn_lib.proximal`. Four integrals, each by the rule that suits it:

- over :math:`w_u`, across the jumps of the prox, along the global minima of each line of constant :math:`w_v`
  (:mod:`attn_lib.theory.prox_line`);
- over :math:`h^\star_u`, Gauss-Legendre in two pieces that meet where the first jump appears, a kink of the average:
  the line folds over at u = 0 if the Moreau objective has negative curvature there,

  .. math:: V\sigma^2\,(T_{11}-T_{22})^2/4 + T_{11} + T_{22} - 1 - w_v^2/4 > 1/(V\sigma^2);

- over :math:`h^\star_v` and :math:`\zeta_v`, midpoint sums: the integrand is nearly smooth.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attn_lib.gaussian import gaussian_ball
from attn_lib.proximal import attention_diagonal, loss
from attn_lib.theory.prox_line import ProxLine, leggauss

__all__ = ["Averages", "Rule", "cavity_averages", "target_diagonal"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Settings of the quadrature.

    Attributes
    ----------
    n_teacher, n_inner : int
        Gauss-Legendre points per piece over h*_u and over w_u.
    step : float
        Midpoint step over h*_v and zeta_v, in standard deviations.
    radius : float
        Cut-off of every Gaussian, in standard deviations.
    """

    n_teacher: int
    n_inner: int
    step: float
    radius: float

    def refined(self):
        """The next finer rule: every part of the error falls by about 5 where there is at most one jump on a line."""
        return Rule(
            n_teacher=-(-self.n_teacher * 5 // 4),
            n_inner=-(-self.n_inner * 6 // 5),
            step=self.step * 0.9,
            radius=self.radius + 0.4,
        )


class Averages(NamedTuple):
    """Gaussian averages that the state evolution needs; products with zeta and h* are sums over u and v."""

    mass: float  # of 1: distance from 1 is the truncation error
    g_u: float
    g_g: float
    g_zeta: float
    g_teacher: float  # g . h*
    gu_zetau: float  # response of g_u to a shift of the mean of w_u
    g_teacher_teacher_zeta: float  # (g . h*) (h* . zeta): response of g . h* to theta
    moreau: float
    loss_at_prox: float
    loss_at_cavity: float  # test error: a fresh sample sees h distributed as w


def cavity_averages(problem, overlaps, rule, block=1000):
    """All averages at given overlaps.

    Parameters
    ----------
    problem : PositionalSemantic
    overlaps : Overlaps
        (q, m, theta, V) with q - theta**2 / rho > 0, V > 0 and m = 0 or theta = 0 (which makes the average even in h*).
    rule : Rule
    block : int
        Number of (h*, zeta_v) nodes handled at a time, sized for the processor's cache.

    Returns
    -------
    Averages
    """
    if overlaps.m and overlaps.theta:
        raise ValueError(f"m = {overlaps.m!r}, theta = {overlaps.theta!r}: one of them must be 0")
    nodes, weight = _nodes(problem, overlaps, rule)
    total = np.zeros(len(Averages._fields))
    for start in range(0, weight.size, block):
        total += _block(problem, overlaps, rule, nodes[:, start : start + block], weight[start : start + block])
    averages = Averages(*map(float, total))
    # odd averages vanish; the half space of h*_u that stands for the whole does not see it
    return averages._replace(
        g_u=averages.g_u if overlaps.m else 0.0, g_teacher=averages.g_teacher if overlaps.theta else 0.0
    )


def _nodes(problem, overlaps, rule):
    """Standardised (h*_u, h*_v, zeta_v), shape (3, N), and weights; h*_u > 0 stands for both signs."""
    # Exchanging the two tokens (h*_v, w_v -> -) leaves the average when both have the same target, and so does w -> -w
    # when its distribution knows of nothing.
    exchangeable = problem.A[0][0] == problem.A[1][1]
    even = not (overlaps.m or overlaps.theta)
    (star_v, zeta_v), weight = gaussian_ball(rule.step, rule.radius, [exchangeable, even])
    q, _, theta, V = overlaps
    w_v = theta / np.sqrt(problem.rho) * star_v + np.sqrt(q - theta**2 / problem.rho) * zeta_v
    birth = _fold_birth(problem, V, star_v, w_v, rule.radius)
    x, piece = leggauss(rule.n_teacher)
    edges = np.stack([np.zeros_like(birth), birth, np.full_like(birth, rule.radius)])
    half = np.diff(edges, axis=0)[:, :, None] / 2
    star_u = (edges[:-1, :, None] + half * (1 + x)).transpose(1, 0, 2).reshape(birth.size, -1)
    weight_u = (half * piece).transpose(1, 0, 2).reshape(birth.size, -1)
    weight_u = weight_u * np.exp(-(star_u**2) / 2) * np.sqrt(2 / np.pi)
    nodes = np.stack([star_u, *(np.broadcast_to(y[:, None], star_u.shape) for y in (star_v, zeta_v))])
    inside = (nodes**2).sum(axis=0) < rule.radius**2
    return nodes[:, inside], (weight[:, None] * weight_u)[inside]


def target_diagonal(problem, star_u, star_v):
    """Diagonal entries of the mixing matrix T of a target with rotated teacher fields.

    Parameters
    ----------
    problem : PositionalSemantic
    star_u, star_v : arrays, broadcast together
        (h*_1 - h*_2)/sqrt 2 and (h*_1 + h*_2)/sqrt 2.

    Returns
    -------
    tuple of arrays
        (T11, T22).
    """
    S11, S22 = attention_diagonal(star_u, star_v)
    (A11, _), (_, A22) = problem.A
    return (1 - problem.omega) * S11 + problem.omega * A11, (1 - problem.omega) * S22 + problem.omega * A22


def _fold_birth(problem, V, star_v, w_v, radius):
    """Smallest standardised h*_u > 0 at which the fold at u = 0 appears or ends; radius / 3 where there is none."""
    strength = V * problem.sigma**2

    def excess(star_u):
        T11, T22 = target_diagonal(problem, np.sqrt(problem.rho) * star_u, np.sqrt(problem.rho) * star_v[:, None])
        return strength * (T11 - T22) ** 2 / 4 + T11 + T22 - 1 - 1 / strength - w_v[:, None] ** 2 / 4

    low, width, found = np.zeros((star_v.size, 1)), radius, True
    for n in (100, 30, 30):
        grid = low + width * np.linspace(0, 1, n)
        values = excess(grid)
        changes = np.diff(values > 0, axis=1)
        found = found & changes.any(axis=1)
        first = changes.argmax(axis=1)[:, None]
        low, width = np.take_along_axis(grid, first, axis=1), width / (n - 1)
    below, above = (np.take_along_axis(values, first + k, axis=1) for k in (0, 1))
    birth = (low + width * below / np.where(below == above, 1, below - above))[:, 0]
    return np.where(found, birth, radius / 3)


def _block(problem, overlaps, rule, nodes, weight):
    q, m, theta, V = overlaps
    sigma, rho = problem.sigma, problem.rho
    spread = np.sqrt(q - theta**2 / rho)
    star_u, star_v = np.sqrt(rho) * nodes[:2]
    T11, T22 = target_diagonal(problem, star_u, star_v)
    mean_u = np.sqrt(2) * m + theta / rho * star_u
    w_v = theta / rho * star_v + spread * nodes[2]

    lines = ProxLine(w_v, T11, T22, V, sigma)
    low, high = mean_u - rule.radius * spread, mean_u + rule.radius * spread
    line, u, v, w_u, dw_u = lines.nodes(low, high, rule.n_inner)

    star_u, star_v, T11, T22, w_v, zeta_v, mean_u, weight = (
        x[line] for x in (star_u, star_v, T11, T22, w_v, nodes[2], mean_u, weight)
    )
    zeta_u = (w_u - mean_u) / spread
    weight = weight * dw_u * np.exp(-(zeta_u**2) / 2) / (np.sqrt(2 * np.pi) * spread)
    g_u, g_v = (u - w_u) / V, (v - w_v) / V
    g_g, g_teacher = g_u**2 + g_v**2, g_u * star_u + g_v * star_v
    at_prox = loss(u, v, T11, T22, sigma)
    integrands = Averages(
        mass=1.0,
        g_u=g_u,
        g_g=g_g,
        g_zeta=g_u * zeta_u + g_v * zeta_v,
        g_teacher=g_teacher,
        gu_zetau=g_u * zeta_u,
        g_teacher_teacher_zeta=g_teacher * (star_u * zeta_u + star_v * zeta_v),
        moreau=V * g_g / 2 + at_prox,
        loss_at_prox=at_prox,
        loss_at_cavity=loss(w_u, w_v, T11, T22, sigma),
    )
    return np.array([weight.sum(), *(np.einsum("n,n", weight, f) for f in integrands[1:])])
