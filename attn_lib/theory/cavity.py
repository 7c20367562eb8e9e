r"""Averages over the cavity field of one sample, the single hard integral of Part I.

The teacher fields :math:`h^\star\sim N(0,\rho I_2)` are drawn first, then the cavity field

.. math::

    w = m\,s + (\theta/\rho)\,h^\star + \sqrt{q-\theta^2/\rho}\;\zeta, \qquad z = \mathrm{prox}(w), \qquad g = (z-w)/V,

in the coordinates u, v of :mod:`attn_lib.proximal`. Three integrals (:math:`h^\star_u, h^\star_v, \zeta_v`) are
midpoint sums. The fourth, over :math:`w_u`, crosses the jump of the prox. It is taken along the curve
:math:`z(u) = (u, v(u))` on which :math:`w_v` is constant: there :math:`w_u(u)` is explicit and smooth, no prox
needs to be solved, and where :math:`w_u(u)` folds back, the two points of equal Moreau value (Maxwell's rule) cut
out exactly the part that is no global minimum.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss

from attn_lib.gaussian import gaussian_ball
from attn_lib.proximal import attention_diagonal, descend, loss, loss_derivatives

__all__ = ["Averages", "Rule", "cavity_averages"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Settings of the quadrature: midpoint step, cut-off radius (both in standard deviations), points per smooth piece."""

    step: float
    radius: float
    n_inner: int

    def refined(self):
        """The next finer rule: three half steps for two, further out, more points per piece."""
        return Rule(step=self.step / 1.5, radius=self.radius + 0.25, n_inner=self.n_inner + 3)


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


def cavity_averages(problem, overlaps, rule, block=1500):
    """All averages at given overlaps.

    Parameters
    ----------
    problem : PositionalSemantic
    overlaps : Overlaps
        (q, m, theta, V) with q - theta**2 / rho > 0 and V > 0.
    rule : Rule
    block : int
        Number of (h*, zeta_v) nodes handled at a time, sized for the processor's cache.

    Returns
    -------
    Averages
    """
    # h* -> -h* with w -> -w leaves the average when m = 0; h* -> -h* alone does when theta = 0;
    # exchanging the two tokens (h*_v, w_v -> -) does when both tokens have the same target.
    even = overlaps.m == 0 or overlaps.theta == 0
    exchangeable = problem.A[0][0] == problem.A[1][1]
    nodes, weight = gaussian_ball(rule.step, rule.radius, [even, exchangeable, False])
    total = np.zeros(len(Averages._fields))
    for start in range(0, weight.size, block):
        total += _block(problem, overlaps, rule, nodes[:, start : start + block], weight[start : start + block])
    return Averages(*map(float, total))


def _block(problem, overlaps, rule, nodes, weight):
    q, m, theta, V = overlaps
    sigma, rho = problem.sigma, problem.rho
    spread = np.sqrt(q - theta**2 / rho)
    star_u, star_v = np.sqrt(rho) * nodes[:2]
    S11, S22 = attention_diagonal(star_u, star_v)
    T11 = (1 - problem.omega) * S11 + problem.omega * problem.A[0][0]
    T22 = (1 - problem.omega) * S22 + problem.omega * problem.A[1][1]
    mean_u = np.sqrt(2) * m + theta / rho * star_u
    w_v = theta / rho * star_v + spread * nodes[2]

    line = _Line(w_v, T11, T22, V, sigma)
    u, v, w_u, dw_u = line.prox_nodes(mean_u - rule.radius * spread, mean_u + rule.radius * spread, rule.n_inner)

    star_u, star_v, T11, T22, w_v, zeta_v, mean_u, weight = (
        x[:, None] for x in (star_u, star_v, T11, T22, w_v, nodes[2], mean_u, weight)
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
    return np.array([(weight * f).sum() for f in integrands])


class _Line:
    """Lines of constant w_v through the prox, one for each entry of the arrays w_v, T11, T22 (shape (N,))."""

    def __init__(self, w_v, T11, T22, V, sigma):
        self.w_v, self.T11, self.T22, self.V, self.sigma = w_v, T11, T22, V, sigma

    def __getitem__(self, index):
        return _Line(self.w_v[index], self.T11[index], self.T22[index], self.V, self.sigma)

    def descend(self, u, v, w_u):
        return descend(u, v, w_u, self.w_v, self.T11, self.T22, self.V, self.sigma)

    def moreau(self, u, v, w_u):
        return ((u - w_u) ** 2 + (v - self.w_v) ** 2) / (2 * self.V) + loss(u, v, self.T11, self.T22, self.sigma)

    def prox_nodes(self, low, high, n_inner):
        """Nodes (u, v, w_u) and weights dw_u, shape (N, 2 n_inner), that sweep w_u from low to high over global minima."""
        ends = self.descend(low, self.w_v, low), self.descend(high, self.w_v, high)
        u, v, w_u, slope, du = self.curve(*ends, 2 * n_inner)
        folded = np.flatnonzero((slope < 0).any(axis=1))
        if folded.size:
            left, right, tie = self[folded].tie(u[folded], v[folded], w_u[folded], slope[folded] < 0)
            inside = (right[0] - left[0] > 1e-3) & (tie > low[folded]) & (tie < high[folded])
            cut, left, right = folded[inside], left[:, inside], right[:, inside]
        else:
            cut = folded
        if cut.size:
            lower = self[cut].curve((ends[0][0][cut], ends[0][1][cut]), left, n_inner)
            upper = self[cut].curve(right, (ends[1][0][cut], ends[1][1][cut]), n_inner)
            for whole, *halves in zip((u, v, w_u, slope, du), lower, upper, strict=True):
                whole[cut] = np.concatenate(halves, axis=1)
        return u, v, w_u, slope * du

    def curve(self, start, end, n):
        """Gauss-Legendre nodes in u from start to end on the curve of constant w_v: (u, v, w_u, dw_u/du, weight in u)."""
        x, weight = leggauss(n)
        half = ((end[0] - start[0]) / 2)[:, None]
        u = start[0][:, None] + half * (1 + x)
        v = start[1][:, None] + (end[1] - start[1])[:, None] / 2 * (1 + x)
        w_v, T11, T22 = self.w_v[:, None], self.T11[:, None], self.T22[:, None]
        bound = self.V * self.sigma**2 * np.abs(u)  # of |V l_v|
        low, high = w_v - bound, w_v + bound
        for _ in range(80):
            l_u, l_v, l_uu, l_uv, l_vv = loss_derivatives(u, v, T11, T22, self.sigma)
            excess = v + self.V * l_v - w_v
            if np.abs(excess).max() < 1e-10:
                slope = 1 + self.V * l_uu - (self.V * l_uv) ** 2 / (1 + self.V * l_vv)
                return u, v, u + self.V * l_u, slope, half * weight
            low, high = np.where(excess < 0, v, low), np.where(excess > 0, v, high)
            v = v - excess / (1 + self.V * l_vv)
            v = np.where((v > low) & (v < high), v, (low + high) / 2)
        raise FloatingPointError(f"curve of constant w_v: no root for v at V = {self.V:.3g}")

    def tie(self, u, v, w_u, falling):
        """The two wells of equal Moreau value around the fold nearest to the middle, and the w_u at which they tie."""
        row = np.arange(len(u))
        last = u.shape[1] - 1
        middle = np.where(falling, np.abs(np.arange(last + 1) - last / 2), np.inf).argmin(axis=1)
        before, after = middle.copy(), middle.copy()
        for _ in range(last):
            before -= falling[row, before] & (before > 0)
            after += falling[row, after] & (after < last)
        tie = (w_u[row, before] + w_u[row, after]) / 2
        width = u[row, after] - u[row, before]
        left = u[row, before] - 0.3 * width, v[row, before]
        right = u[row, after] + 0.3 * width, v[row, after]
        for _ in range(20):
            left, right = self.descend(*left, tie), self.descend(*right, tie)
            gap = right[0] - left[0]
            uneven = self.V * (self.moreau(*right, tie) - self.moreau(*left, tie))
            step = np.where(gap > 1e-4, uneven / np.maximum(gap, 1e-4), 0.0)
            if np.abs(step).max() < 1e-9:
                break
            tie = tie + np.clip(step, -0.3, 0.3)
        return np.array(left), np.array(right), tie
