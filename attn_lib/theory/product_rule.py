r"""The recipe behind the published curves of Part I: a plain product rule and damped steps.

The Gaussians of the state evolution are drawn as

.. math:: w = \sqrt q\,\xi + m\,s, \qquad
    h^\star = \theta\,\xi/\sqrt q + \sqrt{\rho-\theta^2/q}\;\eta, \qquad \xi,\eta\sim N(0,I_2),

and a rule for the plane is applied to xi and to eta. It does not see the jump of the proximal operator, so its error
falls slowly with its degree; :mod:`attn_lib.theory.cavity` splits the integral at the jump instead. This module exists
to find out what the recipe returns, not to be used in its place.
"""

from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from attn_lib.fixed_point import ConvergenceError, anderson
from attn_lib.proximal import loss, prox
from attn_lib.theory.cavity import target_diagonal
from attn_lib.theory.iteration import Hats, Overlaps, train_loss, updated

__all__ = ["RecipeResult", "damped_steps", "gauss_hermite", "rule_fixed_point", "stroud_secrest"]

STARTS = {  # as in the repository
    "semantic": Overlaps(q=0.906838209589, m=0.0, theta=0.3472, V=14.575),
    "positional": Overlaps(q=0.0206838209589, m=0.2, theta=0.0, V=14.575),
}


class RecipeResult(NamedTuple):
    """Where an iteration on a product rule stopped; the residual is what its stopping rule looks at."""

    overlaps: Overlaps
    train_loss: float
    test_error: float
    residual: float
    n_iter: int


def stroud_secrest():
    """The rule of degree 7 for two standard Gaussians with the fewest points.

    Returns
    -------
    tuple of arrays
        Nodes, shape (2, 12), and weights, shape (12,).

    Source
    ------
    Stroud and Secrest, Math. Comp. 17 (1963) 105, the rule named VI.
    """
    root = np.sqrt(5)
    inner, outer = np.sqrt((9 - 3 * root) / 4), np.sqrt((9 + 3 * root) / 4)
    signs = np.array([[1, 1, -1, -1], [1, -1, 1, -1]])
    axes = np.array([[1, -1, 0, 0], [0, 0, 1, -1]])
    nodes = np.concatenate([np.sqrt(6) * axes, inner * signs, outer * signs], axis=1)
    return nodes, np.repeat([1 / 36, (5 + 2 * root) / 45, (5 - 2 * root) / 45], 4)


def gauss_hermite(n):
    """The product of two Gauss-Hermite rules, of degree 2 n - 1, for two standard Gaussians.

    Parameters
    ----------
    n : int
        Points in each dimension, >= 1.

    Returns
    -------
    tuple of arrays
        Nodes, shape (2, n**2), and weights, shape (n**2,).
    """
    x, weight = hermegauss(n)
    weight = weight / weight.sum()
    return np.stack(np.meshgrid(x, x)).reshape(2, -1), np.outer(weight, weight).ravel()


def damped_steps(problem, start, rule, *, loss_rule=None, damping=0.8, tolerance=1e-4, max_iter=3000):
    r"""Iterate the state evolution on a product rule until an update changes q, m and theta by less than a tolerance.

    .. math:: x \leftarrow \mathrm{damping}\;x + (1-\mathrm{damping})\,x_{new}

    Parameters
    ----------
    problem : PositionalSemantic
    start : {"semantic", "positional"} or Overlaps
    rule : tuple (nodes, weights)
        For two standard Gaussians, used for xi and for eta.
    loss_rule : tuple, optional
        Another rule for the mean Moreau value and the test error of the result.
    damping : float
        Weight of the old overlaps, in [0, 1).
    tolerance : float
        Absolute, of the undamped change of q, m and theta; V is not looked at.
    max_iter : int

    Returns
    -------
    RecipeResult

    Raises
    ------
    ConvergenceError
        After max_iter updates; ``partial`` are the last Overlaps.

    Accuracy
    --------
    That of the rule (several per cent at degree 7) and of the stopping rule: the distance to the fixed point is larger
    than the tolerance by one over the smallest 1 - (eigenvalue of the update).

    Source
    ------
    The authors' repository SPOC-group/positional-and-semantic-attention: rules of degree 7 and, for the losses, 11. It
    descends from z = 0 for the proximal operator; here the global minimum is taken.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> result = damped_steps(PositionalSemantic(alpha=2.0, omega=0.3), "semantic", stroud_secrest())
    >>> round(result.overlaps.theta, 2)
    0.16
    """
    if not 0 <= damping < 1:
        raise ValueError(f"damping = {damping!r}: must be in [0, 1)")
    overlaps = STARTS[start] if isinstance(start, str) else start
    for n_iter in range(1, max_iter + 1):
        hats, moreau, test_error = _averages(problem, overlaps, *rule)
        new = updated(problem, hats)
        residual = max(abs(getattr(new, name) - getattr(overlaps, name)) for name in ("q", "m", "theta"))
        if residual < tolerance:
            if loss_rule is not None:
                _, moreau, test_error = _averages(problem, overlaps, *loss_rule)
            return RecipeResult(overlaps, train_loss(problem, overlaps, hats, moreau), test_error, residual, n_iter)
        overlaps = Overlaps(*(damping * old + (1 - damping) * x for old, x in zip(overlaps, new, strict=True)))
    raise ConvergenceError(f"{problem}, {start}: residual {residual:.1e} after {max_iter} updates", overlaps)


def rule_fixed_point(problem, overlaps, rule, *, tolerance=1e-6):
    """Fixed point of the state evolution on a product rule, whatever the recipe's stopping rule would leave.

    Parameters
    ----------
    problem : PositionalSemantic
    overlaps : Overlaps
        Where to begin; the smaller one of m and theta is set to 0 and stays so.
    rule : tuple (nodes, weights)
    tolerance : float
        Relative, of the undamped change of q - theta**2 / rho, V and the overlap that is not zero.

    Returns
    -------
    RecipeResult

    Raises
    ------
    ConvergenceError
        As when an iterate meets a jump of the rule.
    """
    branch = "theta" if overlaps.theta > overlaps.m else "m"

    def from_log(x):
        rest, overlap, V = map(float, np.exp(x))
        o = Overlaps(q=rest, m=0.0, theta=0.0, V=V)._replace(**{branch: overlap})
        return o._replace(q=rest + o.theta**2 / problem.rho)

    def update(x):
        hats, _, _ = _averages(problem, from_log(x), *rule)
        new = updated(problem, hats)
        return to_log(new._replace(**{branch: abs(getattr(new, branch))}))

    def to_log(o):
        return np.log([o.q - o.theta**2 / problem.rho, getattr(o, branch), o.V])

    found = anderson(update, to_log(overlaps), tol=tolerance, far=0.15)
    overlaps = from_log(found.x)
    hats, moreau, test_error = _averages(problem, overlaps, *rule)
    loss_of_rule = train_loss(problem, overlaps, hats, moreau)
    return RecipeResult(overlaps, loss_of_rule, test_error, found.residual, found.n_iter)


def _averages(problem, overlaps, nodes, weights):
    """Conjugates, mean Moreau value, test error: the equations as they stand in the paper's variables."""
    (q, m, theta, V), rho, alpha = overlaps, problem.rho, problem.alpha
    n = weights.size
    xi, eta, weight = np.repeat(nodes, n, axis=1), np.tile(nodes, n), np.outer(weights, weights).ravel()
    spread = np.sqrt(rho - theta**2 / q)
    w_u, w_v = _rotated(np.sqrt(q) * xi + m * np.array([[1], [-1]]))
    T11, T22 = target_diagonal(problem, *_rotated(theta / np.sqrt(q) * xi + spread * eta))
    u, v, moreau = prox(w_u, w_v, T11, T22, V, problem.sigma)
    D = np.stack([u - w_u, v - w_v])
    xi, eta = np.stack(_rotated(xi)), np.stack(_rotated(eta))
    theta_hat = alpha * (weight * (D * eta).sum(axis=0)).sum() / (V * spread)
    hats = Hats(
        q_hat=alpha * (weight * (D**2).sum(axis=0)).sum() / V**2,
        m_hat=alpha * np.sqrt(2) * (weight * D[0]).sum() / V,
        theta_hat=theta_hat,
        V_hat=-alpha * (weight * (D * xi).sum(axis=0)).sum() / (V * np.sqrt(q)) + theta * theta_hat / q,
    )
    test_error = (weight * loss(w_u, w_v, T11, T22, problem.sigma)).sum()
    return Hats(*map(float, hats)), float((weight * moreau).sum()), float(test_error)


def _rotated(fields):
    return (fields[0] - fields[1]) / np.sqrt(2), (fields[0] + fields[1]) / np.sqrt(2)
