r"""Stability of the replica-symmetric fixed points of Part I against a distance between replicas.

Two minimisers of one risk at a distance :math:`\Delta=\sigma^2|Q_a-Q_b|^2/(2d)` have cavity fields that differ by a
Gaussian of variance :math:`2\Delta` per component. One update of the state evolution maps

.. math:: \Delta \;\to\; \frac{\alpha V^2}{2}\,E\,|g(w_a)-g(w_b)|^2 = R\,\Delta + J\sqrt\Delta + \dots

The first term is the replicon of a smooth force, the second comes from samples whose prox jumps between the two fields
(they also change the coefficient of :math:`\Delta`, in proportion to the density of ties, which is left out):

.. math::

    R = \alpha V^2\,E\,\Big|\frac{\partial g}{\partial w}\Big|_F^2, \qquad
    J = \frac{\alpha}{\sqrt\pi}\,E_{h^\star}\!\int_{\rm tie} p(w)\,|\delta z|^2\,dS
      = \frac{\alpha}{\sqrt\pi}\,E_{h^\star,\zeta_v}\Big[p(w_u^{\rm tie})\,\frac{|\delta z|^3}{|\delta z_u|}\Big].

The jump :math:`\delta z` is normal to the tie surface, which gives the last form. With J > 0 the map has infinite slope
at :math:`\Delta=0`: replica symmetry is unstable however small R is, and to leading order replicas settle at
:math:`\Delta=(J/(1-R))^2`.
"""

from typing import NamedTuple

import numpy as np

from attn_lib._checks import check_number
from attn_lib.proximal import loss_derivatives, prox
from attn_lib.theory.cavity import _nodes, target_diagonal
from attn_lib.theory.nested_cavity import nested_averages, shared_nodes
from attn_lib.theory.prox_line import ProxLine

__all__ = ["Replicon", "distance_map", "replicon"]

_SCRAMBLINGS = 8


class Replicon(NamedTuple):
    """Smooth part R and jump J of the map of the distance, and their errors."""

    smooth: float
    jump: float
    smooth_error: float  # standard error over scramblings
    jump_error: float  # change under one refinement of the rule

    @property
    def distance(self):
        """Fixed point (J / (1 - R))**2 of R Delta + J sqrt(Delta), in units of q; infinite for R >= 1."""
        return (self.jump / (1 - self.smooth)) ** 2 if self.smooth < 1 else np.inf


def replicon(solution, *, log2_points=12):
    """R and J at a replica-symmetric fixed point.

    Parameters
    ----------
    solution : Solution
    log2_points : int
        Of each of the eight scrambled Sobol sets for R.

    Returns
    -------
    Replicon

    Accuracy
    --------
    The jump is as good as the order parameters. R has heavy tails, since the derivative of the prox diverges where a
    fold is born: 1 to 10 % at the default.

    Source
    ------
    Derived here; the replicon of de Almeida and Thouless for a proximal operator that jumps.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> from attn_lib.theory.positional_semantic import solve
    >>> at = replicon(solve(PositionalSemantic(alpha=1.5, omega=0.3), "semantic", accuracy=1e-2))
    >>> at.smooth < 1, at.jump > 0
    (True, True)
    """
    problem, overlaps = solution.problem, solution.overlaps
    smooth = [_smooth(problem, overlaps, shared_nodes(log2_points, seed)) for seed in range(_SCRAMBLINGS)]
    coarse, fine = (_jump(problem, overlaps, rule) for rule in (solution.rule, solution.rule.refined()))
    return Replicon(
        smooth=float(np.mean(smooth)),
        jump=fine,
        smooth_error=float(np.std(smooth, ddof=1) / np.sqrt(_SCRAMBLINGS)),
        jump_error=abs(fine - coarse),
    )


def distance_map(solution, distance, *, log2_points=12, seed=0):
    r"""Image of a distance between replicas under one update, without expansion in it.

    .. math:: \Delta_{new} = \alpha V^2\,E\big[\langle|g|^2\rangle-|\langle g\rangle|^2\big]

    Parameters
    ----------
    solution : Solution
        Replica-symmetric.
    distance : float
        Delta, in (0, q - theta**2 / rho).
    log2_points, seed : int
        Of the Sobol points of the average over the common field.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        distance out of range.
    """
    problem, (q, m, theta, V) = solution.problem, solution.overlaps
    largest = q - theta**2 / problem.rho
    check_number("distance", distance, f"in [{1e-12 * q:.1e}, {largest:.4g})", lambda v: 1e-12 * q <= v < largest)
    nodes = shared_nodes(log2_points, seed)
    return problem.alpha * V**2 * nested_averages(problem, (q, q - distance, m, theta, V), 0.0, nodes).spread


def _smooth(problem, overlaps, nodes):
    q, m, theta, V = overlaps
    rho, spread = problem.rho, np.sqrt(q - theta**2 / problem.rho)
    star_u, star_v = np.sqrt(rho) * nodes[:2]
    T11, T22 = target_diagonal(problem, star_u, star_v)
    w_u, w_v = np.sqrt(2) * m + theta / rho * star_u + spread * nodes[2], theta / rho * star_v + spread * nodes[3]
    u, v, _ = prox(w_u, w_v, T11, T22, V, problem.sigma)
    _, _, l_uu, l_uv, l_vv = loss_derivatives(u, v, T11, T22, problem.sigma)
    a, b, c = 1 + V * l_uu, V * l_uv, 1 + V * l_vv  # 1 + V H, with the Hessian H of the loss
    determinant = a * c - b**2
    # V dg/dw = (1 + V H)^-1 - 1
    square = (c / determinant - 1) ** 2 + (a / determinant - 1) ** 2 + 2 * (b / determinant) ** 2
    return problem.alpha * square.mean()


def _jump(problem, overlaps, rule, block=1500):
    q, m, theta, V = overlaps
    rho, spread = problem.rho, np.sqrt(q - theta**2 / problem.rho)
    nodes, weight = _nodes(problem, overlaps, rule)
    total = 0.0
    for part in (slice(i, i + block) for i in range(0, weight.size, block)):
        star_u, star_v = np.sqrt(rho) * nodes[:2, part]
        T11, T22 = target_diagonal(problem, star_u, star_v)
        mean_u = np.sqrt(2) * m + theta / rho * star_u
        lines = ProxLine(theta / rho * star_v + spread * nodes[2, part], T11, T22, V, problem.sigma)
        reach = rule.radius * spread
        line, left, right, tie = lines.jumps(mean_u - reach, mean_u + reach, rule.n_inner)
        jump_u, jump_v = right - left
        size = np.hypot(jump_u, jump_v) ** 3 / np.maximum(np.abs(jump_u), 1e-12)  # 0 for wells that have merged
        density = np.exp(-(((tie - mean_u[line]) / spread) ** 2) / 2) / (np.sqrt(2 * np.pi) * spread)
        total += (weight[part][line] * density * size).sum()
    return float(problem.alpha / np.sqrt(np.pi) * total)
