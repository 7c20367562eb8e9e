r"""Where the prox of two tokens jumps between neighbouring nodes of a rule.

An equidistant rule sees a jump between two of its nodes as if it were half-way. When the two wells tie at the fraction
t of the distance, the integral lacks, to first order in the distance,

.. math:: \big(t-\tfrac12\big)\, w(t)\,(\varphi_L-\varphi_R),

with the weight w of a node there and the integrand on either side.
"""

import numpy as np

from attn_lib.theory.attention_prox import descend

__all__ = ["ties"]


def ties(left, right, omega, step, target, beta, Sigma, n_steps=8):
    r"""Where two wells of the prox objective are equally deep along lines of cavity fields.

    Newton's method, kept in the bracket by bisection, for the difference of the two minima, whose derivative is
    :math:`-\mathrm{step}^\top C^{-1}(z_L-z_R)`. Lines on which neither well reaches the other end are taken as
    continuous.

    Parameters
    ----------
    left, right : arrays, shape (2, N)
        Minima at omega and at omega + step.
    omega : array, shape (2, N)
    step : array, shape (2, 1)
    target : array, shape (2, N)
    beta, Sigma : float
    n_steps : int

    Returns
    -------
    index : array, shape (M,)
        The lines on which the two minima belong to different wells.
    t : array, shape (M,)
        Where they tie, between 0 and 1.
    left, right : arrays, shape (2, M)
        The two wells there.
    """
    near = 1e-4 / beta
    (ahead, _), (back, _) = _descend_both(left, right, omega + step, omega, target, beta, Sigma)
    index = np.flatnonzero(_distance(ahead, right) + _distance(back, left) > near)
    at_low, at_high, omega, target = (a[:, index] for a in (left, right, omega, target))
    low, high, t = np.zeros(index.size), np.ones(index.size), np.full(index.size, 0.5)
    for _ in range(n_steps):
        here = omega + t * step
        (left, left_value), (right, right_value) = _descend_both(at_low, at_high, here, here, target, beta, Sigma)
        gap = left_value - right_value
        apart = _distance(left, right) > near
        # where they are the same, one well has ended before t: the one whose minimum has moved further
        beyond = np.where(apart, gap > 0, _distance(left, at_low) > _distance(right, at_high))
        low, high = np.where(beyond, low, t), np.where(beyond, t, high)
        at_low = np.where(apart & ~beyond, left, at_low)
        at_high = np.where(apart & beyond, right, at_high)
        x, y = left - right
        slope = -((3 * x - y) * step[0] + (3 * y - x) * step[1]) / 8
        newton = t - gap / np.where(apart, slope, 1)
        settled = apart & (np.abs(newton - t) < 1e-6)
        t = np.where(settled, t, np.where(apart & (newton > low) & (newton < high), newton, (low + high) / 2))
        if settled.all():
            break
    return index[apart], t[apart], left[:, apart], right[:, apart]


def _descend_both(left, right, at_left, at_right, target, beta, Sigma):
    """Minima reached from two sides, in one descent."""
    z, value = descend(
        *(np.concatenate(pair, axis=1) for pair in ((left, right), (at_left, at_right), (target, target))), beta, Sigma
    )
    return tuple(zip(np.split(z, 2, axis=1), np.split(value, 2), strict=True))


def _distance(x, y):
    return np.abs(x - y).max(axis=0)
