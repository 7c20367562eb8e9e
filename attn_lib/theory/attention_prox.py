r"""The proximal operator of the attention loss of two tokens.

The rows of the softmax of a symmetric 2 x 2 field z depend only on :math:`u=z_{11}-z_{12}` and
:math:`v=z_{22}-z_{12}`, whose covariance is C = ((3, 1), (1, 3)) times that of an off-diagonal entry. With the logistic
function s and the attention :math:`t=s(\beta_0u_0)` of the target,

.. math::

    \ell(u, v) = 2(s(\beta u)-t_u)^2 + 2(s(\beta v)-t_v)^2, \qquad
    \mathrm{prox}(\omega) = \arg\min_{w=(u,v)} \Sigma\ell(w) + \tfrac12(w-\omega)^\top C^{-1}(w-\omega).

The loss is flat far from its minimum, so that for large :math:`\Sigma` each row may have two wells: one near the
cavity field, one near the target's field.
"""

import numpy as np
from scipy.special import expit, logit

__all__ = ["descend", "loss_terms", "lowest", "may_jump", "search"]

_FEWER = 0.7  # fraction of points left at which the others are dropped: that costs as much as a part of a Newton step
_APART = 1e-4  # of two minima, in units of 1/beta
_LONGEST = 1.5  # of a Newton step, in units of 1/beta: shorter than a well of the logistic function is wide


def loss_terms(z, target, beta):
    r"""Loss of each row with its derivatives.

    .. math:: f = 2(s(\beta u)-t)^2, \qquad f' = 4(s-t)s', \qquad f'' = 4s'^2 + 4(s-t)s''

    Parameters
    ----------
    z, target : arrays, shape (2, N)
        Fields (u, v) and the target's attention (t_u, t_v).
    beta : float

    Returns
    -------
    f, g, h, slope : arrays, shape (2, N)
        The rows' losses, first and second derivatives, and the derivative s' of s(beta u) in u.
    """
    s = expit(beta * z)
    deviation, slope = s - target, beta * s * (1 - s)
    return 2 * deviation**2, 4 * deviation * slope, 4 * slope * (slope + beta * deviation * (1 - 2 * s)), slope


def descend(z, omega, target, beta, Sigma, tol=1e-7, max_iter=200):
    r"""The minimum of the prox objective that Newton's method reaches downhill from z.

    Steps are Newton's, with the Hessian's eigenvalues made positive where the objective is not convex, never longer
    than a well is wide, and halved until the objective falls.

    Parameters
    ----------
    z, omega, target : arrays, shape (2, N)
    beta, Sigma : float
    tol : float
        Ends when a full Newton step is shorter; the error left is of the order of its square.
    max_iter : int

    Returns
    -------
    z : array, shape (2, N)
    value : array, shape (N,)
        The objective.

    Raises
    ------
    FloatingPointError
        Points that have not converged.
    """
    found, value, index, x = np.empty(z.shape), np.empty(z.shape[1]), np.arange(z.shape[1]), z
    # Sigma multiplies the rounding error of s - t, and the flat loss turns it into one of the point
    rounding, tol = 1e-14 * (1 + Sigma / 100), tol * max(1, Sigma / 1e4)
    height, step, is_newton = _newton(x, omega, target, beta, Sigma)
    for _ in range(max_iter):
        short = is_newton & (np.abs(step).max(axis=0) < tol)
        finished = index[short]
        found[:, finished], value[finished] = (x + step)[:, short], height[short]
        left = np.flatnonzero(~short)
        if not left.size:
            return found, value
        if left.size < _FEWER * index.size:
            index, x, height, step, omega, target = (a[..., left] for a in (index, x, height, step, omega, target))
        trial = x + step
        new_height, new_step, new_is_newton = _newton(trial, omega, target, beta, Sigma)
        falls = new_height <= height + rounding * (1 + height)
        if falls.all():
            x, height, step, is_newton = trial, new_height, new_step, new_is_newton
        else:
            x, height = np.where(falls, trial, x), np.where(falls, new_height, height)
            step, is_newton = np.where(falls, new_step, step / 2), falls & new_is_newton
    raise FloatingPointError(f"{left.size} proximal operators have not converged: Sigma = {Sigma:.3g}")


def lowest(omega, target, beta, Sigma):
    """The global minimum of the prox objective.

    Parameters
    ----------
    omega, target : arrays, shape (2, N)
    beta, Sigma : float

    Returns
    -------
    array, shape (2, N)
    """
    return search(omega, target, beta, Sigma, omega)[0]


def search(omega, target, beta, Sigma, start, among=None):
    r"""The global minimum of the prox objective, and where there are others.

    With :math:`a=\mathrm{logit}(t_u)/\beta-\omega_u` and b likewise for v, every stationary point has
    :math:`u-\omega_u` between the least and the largest of a, b/3 and 0: given v, u lies between
    :math:`\omega_u+(v-\omega_v)/3` and the bottom of its loss. Where the objective is convex in u on this interval, u
    has one well, else two: one near the cavity field, one near the target's. Of all combinations the lowest is taken.

    Parameters
    ----------
    omega, target : arrays, shape (2, N)
    beta, Sigma : float
    start : array, shape (2, N)
        A guess.
    among : bool array, shape (N,), optional
        Where to look for other minima than the one next to the guess: everywhere by default.

    Returns
    -------
    z : array, shape (2, N)
    contested : bool array, shape (N,)
        Where different minima were found.
    """
    if not may_jump(beta, Sigma):
        return descend(start, omega, target, beta, Sigma)[0], np.zeros(omega.shape[1], dtype=bool)
    goal = logit(np.clip(target, 1e-15, 1 - 1e-15)) / beta
    several = ~_one_well(goal - omega, omega, target, beta, Sigma)
    if among is not None:
        several &= among
    # far out the loss is flat: the well of a distant target begins where the logistic function has its bend
    move = np.sign(goal) * np.minimum(np.abs(goal), np.maximum(3 / beta, np.sign(goal) * omega))
    follow = omega + (move - omega)[::-1] / 3
    rivals = [
        (several.any(axis=0), omega),
        (several[0], np.stack([move[0], follow[1]])),
        (several[1], np.stack([follow[0], move[1]])),
        (several.all(axis=0), move),
    ]
    # all descents at once: the few slow points of each then take their steps together
    indices = [np.arange(omega.shape[1]), *(np.flatnonzero(where) for where, _ in rivals)]
    guesses = [start, *(rival[:, index] for (_, rival), index in zip(rivals, indices[1:], strict=True))]
    nodes = np.concatenate(indices)
    z, value = descend(np.concatenate(guesses, axis=1), omega[:, nodes], target[:, nodes], beta, Sigma)
    ends = np.cumsum([index.size for index in indices])[:-1]
    (best, *others), (least, *values) = np.split(z, ends, axis=1), np.split(value, ends)
    contested = np.zeros(omega.shape[1], dtype=bool)
    for index, other, height in zip(indices[1:], others, values, strict=True):
        contested[index] |= np.abs(other - best[:, index]).max(axis=0) > _APART / beta
        better = height < least[index] - 1e-12 * (1 + least[index])
        best[:, index[better]], least[index[better]] = other[:, better], height[better]
    return best, contested


def _one_well(distance, omega, target, beta, Sigma):
    """For each row, whether the objective is convex in it on the interval that holds all stationary points."""
    ends = np.stack([distance, distance[::-1] / 3, np.zeros_like(distance)])
    low, high = omega + ends.min(axis=0), omega + ends.max(axis=0)
    # f'' is positive between these two points; beyond, it is at least -4 max|s''| t or -4 max|s''| (1 - t)
    middle, half = (1 + target) / 3, np.sqrt(1 - target + target**2) / 3
    left, right = logit(middle - half) / beta, logit(middle + half) / beta
    allowed = 1 / (4 * Sigma * 4 * beta**2 / np.sqrt(108))
    return ((low >= left) | (target < allowed)) & ((high <= right) | (1 - target < allowed))


def may_jump(beta, Sigma):
    """Whether the prox objective is not convex for all fields, which it is for small beta^2 Sigma.

    Parameters
    ----------
    beta, Sigma : float

    Returns
    -------
    bool
    """
    return 4 * Sigma * beta**2 * _LEAST_CURVATURE <= -1


# The least f'' at beta = 1: for t = 1, 4 s (1-s)^2 (3s-1) at 12 s^2 - 9 s + 1 = 0.
_S = (9 - np.sqrt(33)) / 24
_LEAST_CURVATURE = 4 * _S * (1 - _S) ** 2 * (3 * _S - 1)


def _newton(z, omega, target, beta, Sigma):
    """Objective, the step to take from z, and whether it is Newton's in full."""
    f, g, h, slope = loss_terms(z, target, beta)
    x, y = z - omega
    height = Sigma * (f[0] + f[1]) + (3 * (x * x + y * y) - 2 * x * y) / 16
    force_u, force_v = (3 * x - y) / 8 + Sigma * g[0], (3 * y - x) / 8 + Sigma * g[1]
    a, c = 3 / 8 + Sigma * h
    b = np.full_like(a, -1 / 8)
    determinant = a * c - b**2
    convex = (a > 0) & (determinant > 0)
    if not convex.all():  # the Hessian N with its eigenvalues made positive: (N^2 + |det N|) / its trace
        size = np.abs(determinant)
        trace = np.sqrt(a**2 + c**2 + 2 * b**2 + 2 * size)
        positive = np.stack([a**2 + b**2 + size, c**2 + b**2 + size, b * (a + c)]) / trace
        a, c, b = np.where(convex, [a, c, b], positive)
        determinant = np.maximum(size, 1e-9)
    step = -np.stack([c * force_u - b * force_v, a * force_v - b * force_u]) / determinant
    shorter = np.minimum(1, _LONGEST / np.maximum(beta * np.abs(step).max(axis=0), 1e-300))
    return height, step * shorter, convex & (shorter == 1)
