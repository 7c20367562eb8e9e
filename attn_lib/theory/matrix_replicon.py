r"""Stability of the replica-symmetric fixed points of Part II, and of message passing there.

Let two iterates of message passing differ by a small random matrix, :math:`\Delta=\mathrm{tr}(S_a-S_b)^2`. Their cavity
fields differ by a Gaussian of covariance :math:`C\Delta`, and one iteration later

.. math::

    \Delta' = R\,\Delta, \qquad
    R = \frac{2\alpha}{\hat\Sigma^2}\;
    E\,\mathrm{tr}\Big[\Big(C\,\frac{\partial g}{\partial\omega}\Big)^2\Big]\;
    \iint\mu_\delta(dx)\mu_\delta(dy)\Big[\frac{(x-\epsilon)_+-(y-\epsilon)_+}{x-y}\Big]^2,

with :math:`\partial_\omega g=(1+\Sigma HC)^{-1}H`. A fixed point with R < 1 is stable. The divided difference is 1 for
two eigenvalues above the threshold, 0 for two below, :math:`(x-\epsilon)/(x-y)` for x above and y below.

Where the prox jumps, the two fields may lie on different sides of a jump, with a probability of order
:math:`\sqrt\Delta`, and :math:`\Delta'=R\Delta+J\sqrt\Delta+\dots` (:func:`jump`).
"""

import numpy as np
from scipy.special import expit

from attn_lib._checks import check_integer, check_number
from attn_lib.fixed_point import ConvergenceError
from attn_lib.gaussian import gaussian_ball
from attn_lib.theory.attention_channel import TwoTokenChannel, rotated
from attn_lib.theory.attention_jumps import ties
from attn_lib.theory.attention_prox import loss_terms, lowest, may_jump
from attn_lib.theory.many_tokens_prox import loss_derivatives
from attn_lib.theory.single_head import Solution, channel_of

__all__ = ["growth", "jump", "pair_response", "replicon"]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
SMALLEST = 1e-7  # of the radii of the nodes, in units of the law's width
RADIUS, STEP, STEP_ALONG = 6.0, 0.4, 0.2  # of the rule for jumps, and along the lines on which they are looked for


def replicon(solution):
    """R at a fixed point.

    Parameters
    ----------
    solution : Solution

    Returns
    -------
    float

    Accuracy
    --------
    For two tokens 1e-4 where the prox does not jump; where it does, the derivative of the prox is large near the end of
    a jump and R depends on the rule in the second digit. For more tokens about 1e-2.

    Source
    ------
    Derived in the chapter on message passing; for a vector in place of the matrix it is the condition of de Almeida and
    Thouless.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> from attn_lib.theory.single_head import solve
    >>> problem = SingleHead(alpha=2.0, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> round(replicon(solve(problem)), 2)
    0.15
    """
    if not isinstance(solution, Solution) or solution.epsilon is None:
        raise ValueError(f"solution of type {type(solution).__name__}: must be what single_head.solve returns")
    problem = solution.problem
    channel = channel_of(problem).refined()
    channel.averages(solution.overlaps)
    return growth(channel, solution.overlaps.Sigma, solution.hats.Sigma_hat, solution.delta, solution.epsilon)


def jump(solution):
    r"""J of two tokens at a fixed point.

    With the whitened fields :math:`C^{-1/2}\omega`, in which the difference of two iterates is isotropic, and the jump
    :math:`\delta z` of the prox, which is normal to the surface on which two wells tie,

    .. math::

        J = \frac{2\alpha}{\hat\Sigma^2}\Big[\iint\dots\Big]\,\frac{1}{\Sigma^2}\sqrt{\frac2\pi}\,
        E\Big[p(\omega^{\rm tie}_1)\,\frac{|\delta z|^3}{|\delta z_1|}\Big],

    the average over the target's field and the other component of :math:`\omega`, p the density of the first one.

    Parameters
    ----------
    solution : Solution

    Returns
    -------
    float

    Raises
    ------
    ValueError
        For more than two tokens.

    Accuracy
    --------
    A few percent.

    Source
    ------
    Derived in the chapter on message passing.
    """
    problem, (m, q, Sigma) = solution.problem, solution.overlaps
    check_integer("n_tokens", problem.n_tokens, 2, 2)
    if not may_jump(problem.beta, Sigma):
        return 0.0
    Q_prime = problem.noisy_second_moment
    spread = (q - m**2 / Q_prime) ** 0.5
    nodes, weight = gaussian_ball(STEP, RADIUS, [True, True, False])  # the target's field, then the other component
    x = np.arange(-RADIUS, RADIUS + STEP_ALONG / 2, STEP_ALONG)
    step, total = rotated(np.array([[spread * STEP_ALONG], [0.0]])), 0.0
    for part in np.array_split(np.arange(weight.size), 8):
        z0 = rotated(Q_prime**0.5 * nodes[:2, part])[:, :, None]
        own = np.stack(np.broadcast_arrays(x, nodes[2, part][:, None]))
        omega = m / Q_prime * z0 + rotated(spread * own)
        target = np.broadcast_to(expit(problem.beta0 * z0), omega.shape)
        z = lowest(omega.reshape(2, -1), target.reshape(2, -1), problem.beta, Sigma).reshape(omega.shape)
        line, k = np.nonzero((np.diff(z, axis=2) ** 2).sum(axis=0) > 2 * (step**2).sum())
        if not line.size:
            continue
        at = slice(None), line, k
        index, t, left, right = ties(
            z[at], z[:, line, k + 1], omega[at], step, target[at], problem.beta, Sigma
        )  # fmt: skip
        change = left - right
        first, second = (change[0] + change[1]) / 8**0.5, (change[0] - change[1]) / 2
        density = np.exp(-((x[k[index]] + t * STEP_ALONG) ** 2) / 2) / ((2 * np.pi) ** 0.5 * spread)
        total += (weight[part][line[index]] * density) @ (np.hypot(first, second) ** 3 / np.abs(first))
    pairs = pair_response(problem.target, solution.delta, solution.epsilon)
    return float(2 * problem.alpha * pairs / solution.hats.Sigma_hat**2 * (2 / np.pi) ** 0.5 * total / Sigma**2)


def growth(channel, Sigma, scale, delta, epsilon):
    r"""Factor by which one iteration multiplies a small distance between two iterates.

    Parameters
    ----------
    channel : TwoTokenChannel or ManyTokenChannel
        Its averages have just been taken, at the overlaps of the iterate and at this Sigma.
    Sigma : float
    scale : float
        By which the thresholded matrix is divided, :math:`\hat\Sigma` at a fixed point.
    delta, epsilon : float
        Of the prior, in the next iterate.

    Returns
    -------
    float
    """
    pairs = pair_response(channel.problem.target, delta, epsilon)
    return 2 * channel.problem.alpha * _squared_response(channel, Sigma) * pairs / scale**2


def pair_response(law, delta, epsilon):
    r"""Average over pairs of eigenvalues of the squared divided difference of the soft threshold.

    .. math::

        \iint\Big[\frac{(x-\epsilon)_+-(y-\epsilon)_+}{x-y}\Big]^2\mu_\delta\mu_\delta
        = p^2 + 2\int_{x>\epsilon}\int_{y<\epsilon}\Big(\frac{x-\epsilon}{x-y}\Big)^2\mu_\delta\mu_\delta, \qquad
        p = \mu_\delta(x>\epsilon)

    Each integral over the density :math:`-\mathrm{Im}\,G/\pi` is one over a path in the upper half plane or over its
    mirror image. The path of x leaves :math:`\epsilon` to the right and that of y to the left, so that they never meet.

    Parameters
    ----------
    law : SpectralLaw
        Law of the eigenvalues of S0.
    delta : float
        > 0.
    epsilon : float

    Returns
    -------
    float

    Raises
    ------
    ConvergenceError
        The resolvent was not found on the path; ``partial`` is the largest residual.

    Accuracy
    --------
    1e-8.

    Examples
    --------
    >>> from attn_lib.spectra.laws import Semicircle
    >>> round(pair_response(Semicircle(variance=1.0), 1.0, -10.0), 9)
    1.0
    """
    check_number("delta", delta, "a finite number > 0", lambda v: v > 0)
    check_number("epsilon", epsilon, "a finite number", lambda v: True)
    width = law.upper - law.lower + 4 * delta
    right = max(law.upper + 2 * delta - epsilon, 0.05 * width)
    left = max(epsilon - law.lower + 2 * delta, 0.05 * width)
    x, dx = _path(2 * right, width)
    y, dy = _path(2 * left, width)
    y, dy = -np.conj(y), -np.conj(dy)
    dx, dy = (d * _resolvent(law, delta, epsilon + z) for z, d in ((x, dx), (y, dy)))
    above = -dx.sum().imag / np.pi
    same = dx @ (x[:, None] / (x[:, None] - y)) ** 2 @ dy
    mirrored = dx @ (x[:, None] / (x[:, None] - np.conj(y))) ** 2 @ np.conj(dy)
    return float(above**2 + (same - mirrored).real / np.pi**2)


def _path(length, width):
    """Nodes and weights from 0 along the diagonal of a square of that side, in panels that double, then down to it."""
    radii = SMALLEST * width * 2.0 ** np.arange(np.ceil(np.log2(length / (SMALLEST * width))))
    corners = np.array([0, *radii, length]) * (1 + 1j)
    corners = np.array([*corners, length + 0.5j * length, length])
    half = np.diff(corners)[:, None] / 2
    return (corners[:-1, None] + half * (1 + NODES)).ravel(), (half * WEIGHTS).ravel()


def _resolvent(law, delta, z):
    """G(z) = G0(w) in the upper half plane, w + delta^2 G0(w) = z."""
    w = z + 1j * delta
    for n_iter in range(400):
        residual = w + delta**2 * law.resolvent(w) - z
        if np.abs(residual).max() <= 1e-13 * (1 + np.abs(z).max()):
            return law.resolvent(w)
        if n_iter % 20 < 10:
            w = w - residual / 2  # stays in the half plane, and comes near
        else:
            new = w - residual / (1 + delta**2 * law.resolvent_derivative(w))
            w = np.where(new.imag > 0, new, w - residual / 2)
    raise ConvergenceError("the resolvent was not found", float(np.abs(residual).max()))


def _squared_response(channel, Sigma):
    """E tr[(C dg/domega)^2] at the minima that the channel has just found."""
    if isinstance(channel, TwoTokenChannel):
        _, _, (h_u, h_v), _ = loss_terms(channel.z, channel.target, channel.problem.beta)
        determinant = 1 + 3 * Sigma * (h_u + h_v) + 8 * Sigma**2 * h_u * h_v
        # C dg/domega = P H with P = (C^-1 + Sigma H)^-1
        square = ((3 + 8 * Sigma * h_v) * h_u) ** 2 + ((3 + 8 * Sigma * h_u) * h_v) ** 2 + 2 * h_u * h_v
        return float(square / determinant**2 @ channel.weight)
    _, H = loss_derivatives(channel.y, channel.target, channel.basis, channel.problem.beta)  # here C = 1
    H = np.moveaxis(H, -1, 0)
    response = np.linalg.solve(np.eye(H.shape[1]) + Sigma * H, H)
    return float((response * response.swapaxes(1, 2)).sum(axis=(1, 2)).mean())
