r"""The attention layer of Part I at finite d: fields, attention matrices and the exact error of a sample.

.. math::

    |Tx - S(x+p)|^2/d = \mathrm{Tr}[T G_{xx} T^\top] - 2\,\mathrm{Tr}[T G_{xt} S^\top] + \mathrm{Tr}[S G_{tt} S^\top],
    \qquad G_{xx} = \frac{x x^\top}{d},\; G_{xt} = \frac{x (x+p)^\top}{d},\; G_{tt} = \frac{(x+p)(x+p)^\top}{d}

Once these 2 x 2 Gram matrices are known, the error of any attention matrix S costs nothing that grows with d: this is
an identity, not a limit. Tokens are arrays x of shape (n, 2, d); positions are p_1 = -p_2 = 1_d/sqrt(d).
"""

from typing import NamedTuple

import numpy as np

__all__ = [
    "SIGNS", "GramMatrices", "gram_matrices", "positions", "squared_error", "student_attention", "student_fields",
    "teacher_attention",
]  # fmt: skip

SIGNS = np.array([1.0, -1.0])  # s_l, so that p_l = s_l 1_d/sqrt(d)


def positions(d):
    """Positional encodings p, shape (2, d): p_1 = -p_2 = 1_d/sqrt(d), each of norm 1."""
    return np.outer(SIGNS, np.full(d, d**-0.5))


def student_fields(x, Q):
    """Fields h_l = (x_l + p_l).Q/sqrt(d), shape (n, 2): the positions enter as s_l m with m = 1_d.Q/d."""
    return _project(x, Q) + Q.mean() * SIGNS


def student_attention(x, Q):
    r"""Attention matrices of the student, :math:`S = \mathrm{softmax}(h h^\top)`, shape (n, 2, 2), rows summing to 1.

    Examples
    --------
    >>> student_attention(np.zeros((1, 2, 4)), np.full(4, 2.0)).round(3)     # h = (2, -2): each token attends to itself
    array([[[1., 0.],
            [0., 1.]]])
    """
    return _attention(student_fields(x, Q))


def teacher_attention(problem, x, Q_star):
    r"""Mixing matrices of the target, :math:`T = (1-\omega)\,\mathrm{softmax}(h^\star h^{\star\top}) + \omega A`.

    The teacher sees raw tokens, :math:`h^\star_\ell = x_\ell\cdot Q^\star/\sqrt d`. Shape (n, 2, 2).
    """
    return (1 - problem.omega) * _attention(_project(x, Q_star)) + problem.omega * np.array(problem.A)


class GramMatrices(NamedTuple):
    """Inner products of the two tokens of each sample, divided by d: shape (n, 2, 2) each; t stands for x + p."""

    xx: np.ndarray
    xt: np.ndarray
    tt: np.ndarray


def gram_matrices(x):
    """Gram matrices of raw tokens x (n, 2, d) and encoded tokens x + p, without forming x + p."""
    d = x.shape[-1]
    xx = x @ np.swapaxes(x, 1, 2) / d
    xp = _project(x, np.ones(d))[..., None] * SIGNS / d  # x_l.p_k/d
    pp = np.outer(SIGNS, SIGNS) / d
    return GramMatrices(xx, xx + xp, xx + xp + np.swapaxes(xp, 1, 2) + pp)


def squared_error(T, S, gram):
    """Exact |T x - S (x+p)|**2/d of each sample from its Gram matrices (equation above), shape (n,)."""
    quadratic = ((T @ gram.xx) * T).sum((1, 2)) + ((S @ gram.tt) * S).sum((1, 2))
    return quadratic - 2 * ((T @ gram.xt) * S).sum((1, 2))


def _project(x, Q):
    n, _, d = x.shape
    return (x.reshape(2 * n, d) @ Q).reshape(n, 2) / np.sqrt(d)


def _attention(h):
    scores = h[:, :, None] * h[:, None, :]
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return weights / weights.sum(axis=2, keepdims=True)
