r"""The loss of one sample of the general layer as a function of its attention fields, and its proximal operator.

The fields :math:`z_\ell\in R^r` of the L tokens enter through :math:`S=\mathrm{softmax}(zz^\top)`, row by row. With the
target mixing T and the token variances :math:`\tau_k` a sample costs, and its cavity field w is moved to,

.. math::

    \ell(z) = \tfrac12\sum_{\ell k}\tau_k\,(T_{\ell k}-S_{\ell k})^2, \qquad
    z = \mathrm{argmin}_z\Big\{\tfrac12\sum_\ell (z_\ell-w_\ell)^\top V_\ell^{-1}(z_\ell-w_\ell) + \ell(z)\Big\}.

The loss is even, for r > 1 invariant under all rotations :math:`z_\ell\to R^\top z_\ell`, and has further minima of
other sign patterns. So the objective has several wells; the proximal operator is the *deepest* one. Arrays carry the
samples ("nodes") on their last axis, which keeps the inner loops long.
"""

import numpy as np

__all__ = ["attention", "loss", "loss_derivatives", "moreau_objective", "descend", "wells", "solve_by_pivots"]


def attention(z):
    """Attention matrix softmax(z z^T), normalised over keys.

    Parameters
    ----------
    z : array, shape (L, r, N)
        Fields; r is the rank of student or teacher.

    Returns
    -------
    array, shape (L, L, N)
        Query, key, node.
    """
    logits = np.einsum("lin,kin->lkn", z, z)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def loss(z, T, tau):
    r"""Sample loss :math:`\frac12\sum_{\ell k}\tau_k(T-S)_{\ell k}^2`, the limit of ``|y - f|^2 / (2 d)``.

    Parameters
    ----------
    z : array, shape (L, r, N)
    T : array, shape (L, L, N)
        Target mixing.
    tau : array, shape (L,)
        Token variances Tr Sigma_l / d.

    Returns
    -------
    array, shape (N,)
    """
    return np.einsum("k,lkn->n", tau / 2, (T - attention(z)) ** 2)


def loss_derivatives(z, T, tau):
    r"""Gradient and Hessian of :func:`loss`.

    With :math:`G=zz^\top`, :math:`P_\ell=\mathrm{diag}(S_\ell)-S_\ell S_\ell^\top` for row l of S and
    :math:`E_\ell=\partial\ell/\partial G_\ell=P_\ell\,\mathrm{diag}(\tau)(S_\ell-T_\ell)`,

    .. math::

        \frac{\partial\ell}{\partial z} = (E+E^\top)z, \qquad
        \frac{\partial^2\ell}{\partial G_\ell\partial G_\ell} =
        \mathrm{diag}(E_\ell) - E_\ell S_\ell^\top - S_\ell E_\ell^\top + P_\ell\,\mathrm{diag}(\tau)\,P_\ell .

    Parameters
    ----------
    z, T, tau
        As in :func:`loss`.

    Returns
    -------
    gradient : array, shape (L, r, N)
    hessian : array, shape (L, r, L, r, N)
    """
    L, r = z.shape[:2]
    S = attention(z)
    residual = tau[:, None] * (S - T)
    E = S * (residual - (S * residual).sum(axis=1, keepdims=True))
    symmetric = E + E.transpose(1, 0, 2)
    gradient = np.einsum("lkn,kin->lin", symmetric, z)

    # P diag(tau) P = diag(tau S^2) - (tau S^2) S^T - S (tau S^2)^T + (sum tau S^2) S S^T: the same shape as the E terms
    weighted = tau[:, None] * S**2
    one_sided = E + weighted - weighted.sum(axis=1, keepdims=True) * S / 2
    outer = one_sided[:, :, None] * S[:, None]
    curvature = -outer - outer.transpose(0, 2, 1, 3)
    keys = np.arange(L)
    curvature[:, keys, keys] += E + weighted

    moved = np.einsum("lkjn,jin->lkin", curvature, z)
    half = np.einsum("abin,ajn->aibjn", moved, z)
    hessian = half + half.transpose(2, 3, 0, 1, 4) + np.einsum("labn,lin,ljn->aibjn", curvature, z, z, optimize=True)
    hessian[keys, :, keys] += np.einsum("akin,kjn->aijn", moved, z)
    for i in range(r):
        hessian[:, i, :, i] += symmetric
    return gradient, hessian


def moreau_objective(z, w, T, V_inverse, tau):
    r"""What the proximal operator minimises.

    Parameters
    ----------
    z, w : array, shape (L, r, N)
        Fields and cavity fields.
    T, tau
        As in :func:`loss`.
    V_inverse : array, shape (L, r, r)
        Inverse responses.

    Returns
    -------
    array, shape (N,)
    """
    moved = z - w
    return (moved * np.einsum("lij,ljn->lin", V_inverse, moved)).sum(axis=(0, 1)) / 2 + loss(z, T, tau)


def descend(z, w, T, V_inverse, tau, tol=1e-9, max_iter=300):
    """Local minimum of the Moreau objective reached downhill from z.

    Newton steps with the pivots of the Hessian replaced by their moduli, halved until the objective falls.

    Parameters
    ----------
    z : array, shape (L, r, N)
        Starting point.
    w, T, V_inverse, tau
        As in :func:`moreau_objective`.
    tol : float
        Largest allowed Newton step at the end, in the units of the fields.

    Returns
    -------
    array, shape (L, r, N)

    Raises
    ------
    RuntimeError
        When some node has not reached ``tol`` after ``max_iter`` steps.
    """
    z = np.array(z)
    L, r, N = z.shape
    tokens, todo = np.arange(L), np.arange(N)
    for _ in range(max_iter):
        x, wx, Tx = z[..., todo], w[..., todo], T[..., todo]
        gradient, hessian = loss_derivatives(x, Tx, tau)
        gradient += np.einsum("lij,ljn->lin", V_inverse, x - wx)
        hessian[tokens, :, tokens] += V_inverse[..., None]
        step = -solve_by_pivots(hessian.reshape(L * r, L * r, -1), gradient.reshape(L * r, -1)).reshape(x.shape)
        length = np.sqrt((step**2).sum(axis=(0, 1)))
        slope = (gradient * step).sum(axis=(0, 1))
        scale = np.minimum(1.0, 1.0 / np.maximum(length, 1e-300))
        value = moreau_objective(x, wx, Tx, V_inverse, tau)
        rising = np.flatnonzero(length > 1e-5)  # a Newton step this short needs no search
        for _ in range(40):
            ahead = x[..., rising] + scale[rising] * step[..., rising]
            objective = moreau_objective(ahead, wx[..., rising], Tx[..., rising], V_inverse, tau)
            rising = rising[objective > value[rising] + 1e-4 * (scale * slope)[rising] + 1e-15]
            if not rising.size:
                break
            scale[rising] /= 2
        z[..., todo] = x + scale * step
        todo = todo[length > tol]
        if not todo.size:
            return z
    raise RuntimeError(f"proximal operator: {todo.size} of {N} nodes above tol = {tol} after {max_iter} steps")


def wells(starts, w, T, V_inverse, tau, keep):
    """Different local minima of the Moreau objective, the deepest first: the proximal operator is the first.

    Parameters
    ----------
    starts : array, shape (K, L, r, N)
        Starting points.
    w, T, V_inverse, tau
        As in :func:`moreau_objective`.
    keep : int
        How many to return; where fewer are found the last places repeat what was found twice.

    Returns
    -------
    z : array, shape (keep, L, r, N)
    value : array, shape (N,)
        The Moreau envelope, of the deepest.
    """
    found = np.array([descend(z, w, T, V_inverse, tau) for z in starts])
    values = np.array([moreau_objective(z, w, T, V_inverse, tau) for z in found])
    order = np.argsort(values, axis=0)
    values = np.take_along_axis(values, order, axis=0)
    repeated = np.zeros(values.shape, dtype=bool)
    repeated[1:] = np.diff(values, axis=0) < 1e-9
    order = np.take_along_axis(order, np.argsort(repeated, axis=0, kind="stable"), axis=0)[:keep]
    return np.take_along_axis(found, order[:, None, None], axis=0), values[0]


def solve_by_pivots(matrix, vector):
    """Solve symmetric linear systems after L D L^T elimination with every pivot replaced by its modulus.

    For a positive definite matrix this is the solution; otherwise, with a gradient on the right, minus the result is
    still a direction of descent.

    Parameters
    ----------
    matrix : array, shape (n, n, N)
        N symmetric matrices.
    vector : array, shape (n, N)

    Returns
    -------
    array, shape (n, N)

    Examples
    --------
    >>> matrix = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> solve_by_pivots(matrix[:, :, None], np.array([[3.0], [4.0]])).round(12).ravel()
    array([1., 1.])
    """
    matrix, x = matrix.copy(), vector.copy()
    n = len(x)
    floor = 1e-10 * np.abs(np.einsum("iin->in", matrix)).max(axis=0)
    for i in range(n):
        pivot = np.maximum(np.abs(matrix[i, i]), floor)
        factor = matrix[i + 1 :, i] / pivot
        matrix[i + 1 :, i + 1 :] -= factor[:, None] * matrix[i, i + 1 :]
        matrix[i, i] = pivot
        x[i + 1 :] -= factor * x[i]
    for i in reversed(range(n)):
        x[i] = (x[i] - (matrix[i, i + 1 :] * x[i + 1 :]).sum(axis=0)) / matrix[i, i]
    return x
