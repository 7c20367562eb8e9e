r"""The loss of one sample as a function of its attention fields, and its proximal operator.

For two tokens the fields :math:`h=(h_1,h_2)` enter through :math:`u=(h_1-h_2)/\sqrt2` (what positions move)
and :math:`v=(h_1+h_2)/\sqrt2`: the rows of :math:`S=\mathrm{softmax}(hh^\top)` are fixed by

.. math::

    S_{11} = s(u^2+uv), \qquad S_{22} = s(u^2-uv), \qquad s(x) = 1/(1+e^{-x}),

and a sample with target mixing :math:`T` costs
:math:`\ell(u,v) = \tfrac{\sigma^2}{2}|T-S|_F^2 = \sigma^2[(S_{11}-T_{11})^2+(S_{22}-T_{22})^2]`.
The loss is even under :math:`(u,v)\to-(u,v)` and flat along :math:`u=0`, so its Moreau objective has up to
two wells of competing depth: the proximal operator is the *global* minimiser and jumps where they tie.
"""

import numpy as np

__all__ = [
    "attention_diagonal",
    "loss",
    "loss_expansion",
    "loss_derivatives",
    "moreau_objective",
    "descend",
    "prox",
    "right_point",
    "lowest_starts",
]

_BLOCK = 8192  # nodes of the proximal operator handled at a time, sized for the processor's cache


def attention_diagonal(u, v):
    """Diagonal entries of the 2 x 2 attention matrix.

    Parameters
    ----------
    u, v : arrays, broadcast together
        Rotated fields.

    Returns
    -------
    tuple of arrays
        (S11, S22), each in (0, 1).
    """
    return 0.5 + 0.5 * np.tanh(u * (u + v) / 2), 0.5 + 0.5 * np.tanh(u * (u - v) / 2)


def loss(u, v, T11, T22, sigma):
    """Sample loss sigma**2 [(S11 - T11)**2 + (S22 - T22)**2], which is ``|y - f|^2 / (2 d)`` as d grows.

    Parameters
    ----------
    u, v, T11, T22 : arrays, broadcast together
        Rotated student fields; diagonal of the target mixing matrix.
    sigma : float or array
        Standard deviation of one token component.

    Returns
    -------
    array
    """
    rest1, rest2 = np.tanh(u * (u + v) / 2) / 2 + (0.5 - T11), np.tanh(u * (u - v) / 2) / 2 + (0.5 - T22)
    return sigma**2 * (rest1 * rest1 + rest2 * rest2)


def loss_expansion(u, v, T11, T22):
    """Loss and its derivatives (l, l_u, l_v, l_uu, l_uv, l_vv), all divided by sigma**2.

    Parameters
    ----------
    u, v, T11, T22
        As in :func:`loss`.

    Returns
    -------
    tuple of arrays
        Six, each of the broadcast shape.
    """
    t1, t2 = np.tanh(u * (u + v) / 2), np.tanh(u * (u - v) / 2)  # 2 S - 1
    slope1, slope2 = (1 - t1 * t1) / 4, (1 - t2 * t2) / 4
    rest1, rest2 = t1 / 2 + (0.5 - T11), t2 / 2 + (0.5 - T22)
    g1, g2 = 2 * rest1 * slope1, 2 * rest2 * slope2  # derivatives by the logits u^2 + uv and u^2 - uv
    k1, k2 = 2 * slope1 * (slope1 - rest1 * t1), 2 * slope2 * (slope2 - rest2 * t2)
    g, dg, k, dk, uu, uv = g1 + g2, g1 - g2, k1 + k2, k1 - k2, u * u, u * v
    return (
        rest1 * rest1 + rest2 * rest2,
        2 * g * u + dg * v,
        dg * u,
        k * (4 * uu + v * v) + 4 * dk * uv + 2 * g,
        2 * dk * uu + k * uv + dg,
        k * uu,
    )


def loss_derivatives(u, v, T11, T22, sigma):
    """First and second derivatives of :func:`loss`.

    Parameters
    ----------
    u, v, T11, T22, sigma
        As in :func:`loss`.

    Returns
    -------
    tuple of arrays
        (l_u, l_v, l_uu, l_uv, l_vv), each of the broadcast shape.
    """
    _, *derivatives = loss_expansion(u, v, T11, T22)
    return tuple(sigma**2 * derivative for derivative in derivatives)


def moreau_objective(u, v, w_u, w_v, T11, T22, V, sigma):
    r"""What the proximal operator minimises, :math:`|z-w|^2/(2V) + \ell(z)` at z = (u, v).

    Parameters
    ----------
    u, v, w_u, w_v, T11, T22, V, sigma
        As in :func:`descend`.

    Returns
    -------
    array
    """
    return ((u - w_u) ** 2 + (v - w_v) ** 2) / (2 * V) + loss(u, v, T11, T22, sigma)


def descend(u, v, w_u, w_v, T11, T22, V, sigma, tol=1e-11, max_iter=200):
    r"""Local minimum of the Moreau objective reached downhill from (u, v).

    .. math:: |z-w|^2/(2V) + \ell(z), \qquad z = (u, v)

    Newton steps, a negative curvature turned into its modulus by a shift, halved until the objective falls.

    Parameters
    ----------
    u, v, w_u, w_v, T11, T22 : arrays, broadcast together
        Starting point, cavity field, diagonal of the target mixing.
    V : float
        Response, > 0.
    sigma : float or array
        Token standard deviation.
    tol : float
        Largest allowed ``|w - V grad l(z) - z|``, in the units of the fields; where ``4e-15 V sigma**2``, the size of
        rounding errors, is larger: that, but at most 1e-6.
    max_iter : int
        Evaluations of the objective at one node, halved steps included.

    Returns
    -------
    tuple of arrays
        (u, v) at the minimum.

    Raises
    ------
    RuntimeError
        When some node has not reached ``tol`` after ``max_iter`` evaluations.
    """
    nodes = np.broadcast_arrays(u, v, w_u, w_v, T11, T22, V * np.square(sigma))
    shape = nodes[0].shape
    u, v, *fixed = (x.astype(float).ravel() for x in nodes)
    todo, fixed, ahead_u, ahead_v, last = np.arange(u.size), np.array(fixed), u, v, None
    for _ in range(max_iter):
        w_u, w_v, T11, T22, strength = fixed
        rest, l_u, l_v, l_uu, l_uv, l_vv = loss_expansion(ahead_u, ahead_v, T11, T22)
        grad_u, grad_v = ahead_u - w_u, ahead_v - w_v
        value = (grad_u * grad_u + grad_v * grad_v) / 2 + strength * rest
        grad_u, grad_v = grad_u + strength * l_u, grad_v + strength * l_v
        done = grad_u * grad_u + grad_v * grad_v <= np.maximum(tol, np.minimum(4e-15 * strength, 1e-6)) ** 2
        a, b, c = 1 + strength * l_uu, strength * l_uv, 1 + strength * l_vv
        half = (a - c) / 2
        lowest = (a + c) / 2 - np.sqrt(half * half + b * b)
        shift = np.where(lowest < 1e-8, 1e-8 - 2 * lowest, 0.0)
        a, c = a + shift, c + shift
        det = a * c - b * b
        step_u, step_v = (b * grad_v - c * grad_u) / det, (b * grad_u - a * grad_v) / det
        scale = 1 / np.sqrt(np.maximum(step_u * step_u + step_v * step_v, 1.0))
        here = [ahead_u, ahead_v, value, grad_u * step_u + grad_v * step_v, step_u, step_v, scale]
        if last is not None:
            *_, before, slope, _, _, scale = last
            fell = (value <= before + 1e-4 * scale * slope + 1e-15 * (1 + np.abs(before))) | (scale < 1e-12)
            if not fell.all():
                here = np.where(fell, here, [*last[:-1], scale / 2])
                done &= fell
        if done.any():
            index = todo[done]
            u[index], v[index] = ahead_u[done], ahead_v[done]
            left = np.flatnonzero(~done)
            if not left.size:
                return u.reshape(shape), v.reshape(shape)
            todo, fixed, here = todo[left], fixed.take(left, axis=1), [x.take(left) for x in here]
        last = x, y, _, _, step_u, step_v, scale = here
        ahead_u, ahead_v = x + scale * step_u, y + scale * step_v
    raise RuntimeError(f"proximal operator: {todo.size} of {u.size} nodes above tol = {tol} after {max_iter} steps")


def prox(w_u, w_v, T11, T22, V, sigma):
    """Global minimiser of the Moreau objective: downhill from the lowest of several points on either side of u = 0.

    Far from the origin (``|w| > 1``, or .7 where ``T11 + T22 < 1``) one side may hold several wells; there the search
    goes downhill from eight more points.

    Parameters
    ----------
    w_u, w_v, T11, T22, V, sigma
        As in :func:`descend`.

    Returns
    -------
    tuple of arrays
        (u, v, value), where value is the minimum of ``|z - w|^2 / (2 V) + loss(z)`` (the Moreau envelope).
    """
    nodes = np.broadcast_arrays(w_u, w_v, T11, T22, V, sigma)
    flat = [x.ravel() for x in nodes]
    blocks = [_deepest([x[i : i + _BLOCK] for x in flat]) for i in range(0, flat[0].size, _BLOCK)]
    return tuple(np.concatenate(blocks, axis=1).reshape(3, *nodes[0].shape))


def _deepest(here):
    """Rows (u, v, value) of the deepest well found, for flat arrays w_u, w_v, T11, T22, V, sigma."""
    best = _best(descend(*lowest_starts(*here), *here), here)
    w_u, w_v, T11, T22, *_ = here
    far = np.flatnonzero(w_u**2 + w_v**2 > np.where(T11 + T22 < 1, 0.5, 1.0))
    if far.size:
        here = [x[far] for x in here]
        w_u, w_v, *_ = here
        size = 0.5 + np.abs(w_u) + np.abs(w_v)
        u = [w_u, -w_u, size, -size, size / 2, -size / 2, w_u / 2, w_u / 2]
        v = [w_v, w_v, w_v, w_v, -w_v, -w_v, w_v - w_u, w_v + w_u]
        u, v = descend(np.array(u), np.array(v), *here)
        best[:, far] = _best((np.vstack([u, best[0, far]]), np.vstack([v, best[1, far]])), here)
    return best


def _best(points, here):
    """Rows (u, v, value) of the lowest of several points for each node, each of shape (number of points, N)."""
    candidates = np.array([*points, moreau_objective(*points, *here)])
    return np.take_along_axis(candidates, candidates[2].argmin(axis=0)[None, None], axis=1)[:, 0]


def right_point(T11, T22):
    """One of the two points (the other one is its negative) at which the attention comes closest to the target.

    Parameters
    ----------
    T11, T22 : arrays

    Returns
    -------
    tuple of arrays
        (u, v), u > 0: where S11 = T11 and S22 = T22 if ``T11 + T22 > 1``, else not far from u = 0.
    """
    logit1, logit2 = (np.log((T + 1e-3) / (1 + 1e-3 - T)) for T in (np.clip(T11, 0, 1), np.clip(T22, 0, 1)))
    u = np.sqrt(np.maximum(logit1 + logit2, np.abs(logit1 - logit2)) / 2 + 1e-6)
    return u, (logit1 - logit2) / (2 * u)


def lowest_starts(w_u, w_v, T11, T22, V, sigma):
    """The lowest of a few points on either side of u = 0, from which the way down is short.

    Among them are four on the way from w to the :func:`right_point` of that side.

    Parameters
    ----------
    w_u, w_v, T11, T22, V, sigma : arrays, shape (N,), or floats

    Returns
    -------
    tuple of arrays
        (u, v), each of shape (2, N): u > 0 first.
    """
    right_u, right_v = right_point(T11, T22)
    size = 0.5 + np.abs(w_u) + np.abs(w_v)
    side, way = np.array([[1.0], [-1.0]]), np.array([0.25, 0.5, 0.75, 1.0])[:, None, None]
    on_way = w_u + way * (side * right_u - w_u), w_v + way * (side * right_v - w_v)
    near = np.abs(w_u) + 0.01  # at u = 0 the start may be a saddle, which has no way down
    u = np.concatenate([on_way[0], side * np.stack([near, size, size / 2])[:, None]])
    v = np.concatenate([on_way[1], np.broadcast_to(np.stack([w_v, w_v, -w_v])[:, None], (3, 2, len(w_v)))])
    best = moreau_objective(u, v, w_u, w_v, T11, T22, V, sigma).argmin(axis=0)[None]
    return np.take_along_axis(u, best, axis=0)[0], np.take_along_axis(v, best, axis=0)[0]
