r"""The first stage of training: how gradient flow leaves the origin, in the limit of large d.

Near Q = 0 the attention is uniform up to second order, and the empirical risk of Part I is a quadratic form,

.. math::

    F(Q) = F(0) - \tfrac12 Q^\top(M - \lambda I)\,Q + O(|Q|^4), \qquad
    M = \frac{\sigma^2}{d}\sum_{\mu=1}^n X_\mu^\top W_\mu X_\mu,

with the encoded tokens of a sample as the rows of the 2 x d matrix X and the weights

.. math::

    W = \begin{pmatrix} \tau_1 & -(\tau_1+\tau_2)/2 \\ -(\tau_1+\tau_2)/2 & \tau_2\end{pmatrix}, \qquad
    \tau_\ell = T_{\ell\ell} - \tfrac12 .

Under gradient flow a small Q grows along each eigenvector of M at the rate (eigenvalue minus lambda). M is a
weighted covariance matrix: a bulk, and at most one outlier for each of the directions that its samples know of, the
positions and the target.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from attn_lib.gaussian import gaussian_ball
from attn_lib.theory.cavity import target_diagonal

__all__ = ["EscapeRates", "escape_rates"]


class EscapeRates(NamedTuple):
    """Growth rates of a small Q, and alignments (squared cosines) of the two leading eigenvectors with 1_d and Q*.

    bulk is the largest rate in a direction that knows of neither. Where a direction has no outlier, its rate is that
    of the bulk and its alignment 0. A negative rate means that Q = 0 is stable there.
    """

    bulk: float
    positional: float
    semantic: float
    positional_alignment: float
    semantic_alignment: float


def escape_rates(problem):
    r"""Bulk edge and outliers of M, minus lambda.

    With :math:`s=\sigma^4\,\mathrm{tr}(z-M)^{-1}/d` and :math:`B = W(1-sW)^{-1}`, the bulk is parametrised by s, an
    outlier along a unit vector e solves the second equation with y = X e, and its eigenvector has the third overlap:

    .. math::

        z(s) = \sigma^4/s + \alpha\sigma^4\,E\,\mathrm{tr} B, \qquad
        z(s) = \alpha\sigma^2\,E[y^\top B\,y], \qquad
        (e\cdot v)^2 = \Big(1-\alpha\sigma^2 E[y^\top B^2y]/z'(s)\Big)^{-1}.

    The edge is the smallest z(s) on s > 0 before 1 - sW becomes singular. The positional direction has
    :math:`y=s_\ell+\sigma\cdot` noise, the semantic one :math:`y=h^\star`, which W depends on.

    Parameters
    ----------
    problem : PositionalSemantic

    Returns
    -------
    EscapeRates

    Accuracy
    --------
    1e-6 relative (midpoint rule over the two teacher fields).

    Source
    ------
    Derived here, in the manner of spectral methods for generalised linear models; not in arXiv 2402.03902.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> rates = escape_rates(PositionalSemantic(alpha=2.0, omega=0.3))
    >>> rates.positional > rates.semantic > rates.bulk > 0
    True
    """
    alpha, rho = problem.alpha, problem.rho
    nodes, weight = gaussian_ball(0.1, 7.0, [True, False])  # W and h* B h* do not change under h* to -h*
    h = np.sqrt(rho) * nodes  # in rotated fields u = (h_1 - h_2)/sqrt 2, v = (h_1 + h_2)/sqrt 2
    tau = np.array(target_diagonal(problem, *h)) - 0.5
    mean, half = (tau[0] + tau[1]) / 2, (tau[0] - tau[1]) / 2
    W = np.array([[2 * mean, half], [half, np.zeros_like(half)]]).transpose(2, 0, 1)

    def averages(s, power):
        """E tr B^power, and E y.B^power y for the positional and the semantic direction."""
        B = np.linalg.matrix_power(W @ np.linalg.inv(np.eye(2) - s * W), power)
        trace = weight @ np.trace(B, axis1=1, axis2=2)
        positional = rho * trace + 2 * weight @ B[:, 0, 0]  # s_l is sqrt 2 along u
        return trace, positional, weight @ np.einsum("in,nij,jn->n", h, B, h)

    def z(s):
        return rho**2 / s + alpha * rho**2 * averages(s, 1)[0]

    def slope(s):
        """s^2 z'(s)/rho^2: increases from -1."""
        return alpha * s**2 * averages(s, 2)[0] - 1

    end = (1 - 1e-9) / max(np.linalg.eigvalsh(W).max(), 1e-6)
    start = 1e-6 * end
    while slope(start) >= 0:
        start /= 10
    edge = brentq(slope, start, end) if slope(end) > 0 else end

    def outlier(which):
        """Rate and alignment along one direction, those of the bulk when nothing lies outside it."""

        def excess(s):
            return alpha * rho * averages(s, 1)[which] - z(s)

        if excess(edge) <= 0:
            return z(edge) - problem.lam, 0.0
        low = start
        while excess(low) >= 0:
            low /= 10
        s = brentq(excess, low, edge)
        return z(s) - problem.lam, 1 / (1 - alpha * rho * averages(s, 2)[which] * s**2 / (rho**2 * slope(s)))

    (positional, along_positions), (semantic, along_target) = outlier(1), outlier(2)
    return EscapeRates(*map(float, (z(edge) - problem.lam, positional, semantic, along_positions, along_target)))
