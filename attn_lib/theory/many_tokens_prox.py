r"""The loss of one sample of T tokens as a function of its fields, and its proximal operator.

A row of attention does not change when a constant is added to it. A symmetric matrix of fields z can add the same
constant to all its rows only, so the loss depends on

.. math:: k = \frac{T(T+1)}2 - 1 = \frac{T^2+T-2}2

coordinates y, for which we take symmetric matrices :math:`E_i` of zero total:

.. math::

    z = \sum_{i=1}^k y_iE_i + \mathrm{const}\cdot 1_T1_T^\top, \qquad
    \mathrm{Tr}\,E_iE_j = 2\delta_{ij}, \qquad 1_T^\top E_i1_T = 0 .

In them Gaussian fields of covariance :math:`C=\mathrm{diag}(1+\delta_{ab})` are isotropic, and
:math:`(z-\omega)^\top C^{-1}(z-\omega)=|y_z-y_\omega|^2`, up to the constant that no loss sees. Arrays carry the
samples ("nodes") on their last axis.
"""

import numpy as np

from attn_lib._checks import check_integer
from attn_lib.theory.general_prox import solve_by_pivots

__all__ = ["MIN_CURVATURE", "attention", "descend", "field_basis", "loss", "loss_derivatives", "target_derivative"]

# The Hessian of |softmax(u) - p|^2 in a row u is concave in p, so its smallest eigenvalue is taken at a vertex p. Two
# entries have 8 s (1-s)^2 (3s-1) there, s logistic, which is lowest at this s; longer rows go no lower (see the tests).
_S = (9 - 33**0.5) / 24
MIN_CURVATURE = 8 * _S * (1 - _S) ** 2 * (3 * _S - 1)


def field_basis(n_tokens):
    """The matrices E_i.

    Parameters
    ----------
    n_tokens : int
        T >= 2.

    Returns
    -------
    array, shape (k, T, T)
        Symmetric, Tr E_i E_j = 2 delta_ij, each of zero total.

    Examples
    --------
    >>> [len(field_basis(T)) for T in (2, 3, 4)]
    [2, 5, 9]
    """
    check_integer("n_tokens", n_tokens, 2)
    rows, columns = np.triu_indices(n_tokens)
    single = np.zeros((len(rows), n_tokens, n_tokens))
    single[range(len(rows)), rows, columns] = single[range(len(rows)), columns, rows] = 1
    single *= np.where(rows == columns, 2**0.5, 1.0)[:, None, None]
    total = single.sum(axis=(1, 2))
    complement = np.linalg.svd(total[None])[2][1:]
    return np.tensordot(complement, single, axes=1)


def attention(y, basis, beta):
    """Attention matrix softmax(beta z), normalised over keys.

    Parameters
    ----------
    y : array, shape (k, N)
    basis : array, shape (k, T, T)
        From :func:`field_basis`.
    beta : float
        Inverse temperature.

    Returns
    -------
    array, shape (T, T, N)
        Query, key, node.
    """
    logits = beta * np.tensordot(basis, y, axes=(0, 0))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def loss(y, target, basis, beta):
    """Sample loss sum_ab (target - attention)_ab^2.

    Parameters
    ----------
    y, basis, beta
        As in :func:`attention`.
    target : array, shape (T, T, N)
        The target's attention matrix.

    Returns
    -------
    array, shape (N,)
    """
    return ((attention(y, basis, beta) - target) ** 2).sum(axis=(0, 1))


def loss_derivatives(y, target, basis, beta):
    r"""Gradient and Hessian of :func:`loss` in y.

    For a row of attention A with residual r = A - target, :math:`P=\mathrm{diag}A-AA^\top` and
    :math:`e = r - A\cdot r + A`, in the entries of the row of z,

    .. math::

        \text{gradient} = 2\beta Pr, \qquad
        \text{Hessian} = 2\beta^2\big[\mathrm{diag}(A\odot e) - A f^\top - f A^\top\big], \qquad
        f = A\odot\big(e - \tfrac12|A|^2\big).

    Parameters
    ----------
    y, target, basis, beta
        As in :func:`loss`.

    Returns
    -------
    gradient : array, shape (k, N)
    hessian : array, shape (k, k, N)
    """
    k, T, N = *basis.shape[:2], y.shape[1]
    A = attention(y, basis, beta)
    residual = A - target
    centred = residual - (A * residual).sum(axis=1, keepdims=True)
    e = centred + A
    f = A * (e - (A**2).sum(axis=1, keepdims=True) / 2)
    gradient = 2 * beta * np.tensordot(basis, A * centred, axes=((1, 2), (0, 1)))
    squares = (basis[:, None] * basis).reshape(k * k, T * T)
    hessian = (squares @ (A * e).reshape(T * T, N)).reshape(k, k, N)
    A_moved = np.einsum("iab,abn->ain", basis, A, optimize=True)
    f_moved = np.einsum("iab,abn->ain", basis, f, optimize=True)
    cross = np.einsum("ain,ajn->ijn", A_moved, f_moved)
    return gradient, 2 * beta**2 * (hessian - cross - cross.transpose(1, 0, 2))


def target_derivative(y, target, basis, beta, beta0):
    r"""Mixed second derivatives of the loss in y and in the coordinates of the target's fields.

    .. math:: -2\beta\beta_0\,P\,P_0 \quad\text{in the entries of a row}, \qquad P_0 \text{ the P of the target}

    Parameters
    ----------
    y, target, basis, beta
        As in :func:`loss`.
    beta0 : float
        Inverse temperature of the target.

    Returns
    -------
    array, shape (k, k, N)
    """
    student, teacher = (_jacobian(A, basis) for A in (attention(y, basis, beta), target))
    return -2 * beta * beta0 * np.einsum("iabn,jabn->ijn", student, teacher)


def descend(y, omega, target, basis, beta, Sigma, tol=1e-10, max_iter=100):
    r"""Local minimum of :math:`\ell(y)+|y-\omega|^2/(2\Sigma)` reached downhill from y.

    Newton steps with the pivots of the Hessian replaced by their moduli, halved until the objective falls.

    Parameters
    ----------
    y : array, shape (k, N)
        Starting point.
    omega : array, shape (k, N)
        Cavity fields.
    target, basis, beta
        As in :func:`loss`.
    Sigma : float
        Response, > 0.
    tol : float
        Largest allowed Newton step at the end, in the units of the fields.

    Returns
    -------
    array, shape (k, N)

    Raises
    ------
    FloatingPointError
        Some node has not reached ``tol`` after ``max_iter`` steps.
    """
    y, todo = np.array(y), np.arange(y.shape[1])
    diagonal = np.arange(len(y))
    for _ in range(max_iter):
        x, w, t = y[:, todo], omega[:, todo], target[..., todo]
        gradient, hessian = loss_derivatives(x, t, basis, beta)
        gradient, hessian = x - w + Sigma * gradient, Sigma * hessian
        hessian[diagonal, diagonal] += 1
        step = -solve_by_pivots(hessian, gradient)
        length = np.sqrt((step**2).sum(axis=0))
        scale = np.minimum(1.0, 3.0 / np.maximum(length, 1e-300))
        slope = (gradient * step).sum(axis=0)
        rising = np.flatnonzero(length > 1e-4)  # a Newton step this short needs no search
        value = _objective(x[:, rising], w[:, rising], t[..., rising], basis, beta, Sigma)
        for _ in range(40):
            ahead = x[:, rising] + scale[rising] * step[:, rising]
            objective = _objective(ahead, w[:, rising], t[..., rising], basis, beta, Sigma)
            bad = objective > value + 1e-4 * (scale * slope)[rising] + 1e-14
            rising, value = rising[bad], value[bad]
            if not rising.size:
                break
            scale[rising] /= 2
        y[:, todo] = x + scale * step
        todo = todo[~(length <= tol)]
        if not todo.size:
            return y
    raise FloatingPointError(f"proximal operator: {todo.size} of {y.shape[1]} nodes above tol = {tol}")


def _objective(y, omega, target, basis, beta, Sigma):
    return ((y - omega) ** 2).sum(axis=0) / 2 + Sigma * loss(y, target, basis, beta)


def _jacobian(A, basis):
    """The product E_i P, row by row: derivatives of attention in y, without beta."""
    return basis[..., None] * A - np.einsum("iab,abn->ian", basis, A, optimize=True)[:, :, None] * A
