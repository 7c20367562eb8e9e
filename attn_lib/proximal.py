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

__all__ = ["attention_diagonal", "loss", "loss_derivatives", "moreau_objective", "descend", "prox"]


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
    return _logistic(u * (u + v)), _logistic(u * (u - v))


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
    S11, S22 = attention_diagonal(u, v)
    return sigma**2 * ((S11 - T11) ** 2 + (S22 - T22) ** 2)


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
    S11, S22 = attention_diagonal(u, v)
    p, n = 2 * u + v, 2 * u - v  # d(u^2 + uv)/du and d(u^2 - uv)/du
    slope1, slope2 = S11 * (1 - S11), S22 * (1 - S22)
    rest1, rest2 = S11 - T11, S22 - T22
    g1, g2 = 2 * sigma**2 * rest1 * slope1, 2 * sigma**2 * rest2 * slope2
    k1 = 2 * sigma**2 * slope1 * (slope1 + rest1 * (1 - 2 * S11))
    k2 = 2 * sigma**2 * slope2 * (slope2 + rest2 * (1 - 2 * S22))
    return (
        g1 * p + g2 * n,
        (g1 - g2) * u,
        k1 * p**2 + k2 * n**2 + 2 * (g1 + g2),
        (k1 * p - k2 * n) * u + g1 - g2,
        (k1 + k2) * u**2,
    )


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
        Largest allowed ``|w - V grad l(z) - z|``, in the units of the fields.

    Returns
    -------
    tuple of arrays
        (u, v) at the minimum.

    Raises
    ------
    RuntimeError
        When some node has not reached ``tol`` after ``max_iter`` steps.
    """
    nodes = np.broadcast_arrays(u, v, w_u, w_v, T11, T22, sigma)
    shape = nodes[0].shape
    u, v, w_u, w_v, T11, T22, sigma = (np.array(x, dtype=float).ravel() for x in nodes)
    todo = np.arange(u.size)
    for _ in range(max_iter):
        here = (T11[todo], T22[todo], sigma[todo])
        x, y, wx, wy = u[todo], v[todo], w_u[todo], w_v[todo]
        lu, lv, luu, luv, lvv = loss_derivatives(x, y, *here)
        grad_u, grad_v = (x - wx) + V * lu, (y - wy) + V * lv
        open_ = ~(np.hypot(grad_u, grad_v) <= tol)
        if not open_.any():
            return u.reshape(shape), v.reshape(shape)
        todo = todo[open_]
        here = (T11[todo], T22[todo], sigma[todo])
        x, y, wx, wy, grad_u, grad_v = (a[open_] for a in (x, y, wx, wy, grad_u, grad_v))
        a, b, c = 1 + V * luu[open_], V * luv[open_], 1 + V * lvv[open_]
        lowest = (a + c) / 2 - np.hypot((a - c) / 2, b)
        shift = np.where(lowest < 1e-8, 1e-8 - 2 * lowest, 0.0)
        a, c = a + shift, c + shift
        det = a * c - b * b
        step_u, step_v = -(c * grad_u - b * grad_v) / det, -(a * grad_v - b * grad_u) / det
        scale = np.minimum(1.0, 1.0 / np.maximum(np.hypot(step_u, step_v), 1e-300))

        def objective(p, q, wx=wx, wy=wy, here=here):
            return ((p - wx) ** 2 + (q - wy) ** 2) / 2 + V * loss(p, q, *here)

        value = objective(x, y)
        slope = grad_u * step_u + grad_v * step_v
        for _ in range(40):
            ahead = objective(x + scale * step_u, y + scale * step_v)
            rises = ahead > value + 1e-4 * scale * slope + 1e-15 * (1 + np.abs(value))
            if not rises.any():
                break
            scale = np.where(rises, scale / 2, scale)
        u[todo], v[todo] = x + scale * step_u, y + scale * step_v
    raise RuntimeError(f"proximal operator: {todo.size} of {u.size} nodes above tol = {tol} after {max_iter} steps")


def prox(w_u, w_v, T11, T22, V, sigma):
    """Global minimiser of the Moreau objective: downhill from several starts on either side of u = 0.

    Parameters
    ----------
    w_u, w_v, T11, T22, V, sigma
        As in :func:`descend`.

    Returns
    -------
    tuple of arrays
        (u, v, value), where value is the minimum of ``|z - w|^2 / (2 V) + loss(z)`` (the Moreau envelope).
    """
    w_u, w_v, T11, T22, sigma = np.broadcast_arrays(w_u, w_v, T11, T22, sigma)
    size = 0.5 + np.abs(w_u) + np.abs(w_v)
    starts = [(w_u, w_v), (-w_u, w_v), (size, w_v), (-size, w_v), (size / 2, -w_v), (-size / 2, -w_v)]
    wells = [descend(u, v, w_u, w_v, T11, T22, V, sigma) for u, v in starts]
    values = [moreau_objective(u, v, w_u, w_v, T11, T22, V, sigma) for u, v in wells]
    best = np.argmin(values, axis=0)[None]
    pick = lambda stack: np.take_along_axis(np.array(stack), best, axis=0)[0]  # noqa: E731
    return pick([u for u, _ in wells]), pick([v for _, v in wells]), pick(values)


def _logistic(x):
    return 0.5 * (1 + np.tanh(x / 2))
