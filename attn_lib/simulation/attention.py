r"""The attention layer of Part I at finite d: fields, attention matrices and the exact error of a sample.

.. math::

    |Tx - S(x+p)|^2/d = \mathrm{Tr}[T G_{xx} T^\top] - 2\,\mathrm{Tr}[T G_{xt} S^\top]
    + \mathrm{Tr}[S G_{tt} S^\top],

    G_{xx} = x x^\top/d, \qquad G_{xt} = x (x+p)^\top/d, \qquad G_{tt} = (x+p)(x+p)^\top/d

Once these 2 x 2 Gram matrices are known, the error of any attention matrix S costs nothing that grows with d.
This is an identity, not a limit. Tokens are arrays x of shape (n, 2, d).
"""

from typing import NamedTuple

import numpy as np

__all__ = [
    "SIGNS",
    "GramMatrices",
    "gram_matrices",
    "positions",
    "squared_error",
    "student_attention",
    "teacher_attention",
]

SIGNS = np.array([1.0, -1.0])  # s_l, so that p_l = s_l 1_d/sqrt(d)


def positions(d):
    """Positional encodings p_1 = -p_2 = 1_d/sqrt(d), each of norm 1.

    Parameters
    ----------
    d : int

    Returns
    -------
    array (2, d)
    """
    return np.outer(SIGNS, np.full(d, d**-0.5))


def student_attention(x, Q):
    r"""Attention matrices of the student.

    .. math:: S = \mathrm{softmax}(h h^\top), \qquad h_\ell = (x_\ell + p_\ell)\cdot Q/\sqrt d

    Parameters
    ----------
    x : array (n, 2, d)
        Raw tokens; the positions are added here.
    Q : array (d,)

    Returns
    -------
    array (n, 2, 2)
        Rows sum to 1.

    Examples
    --------
    Without content (x = 0) and with Q along the positions, h = (2, -2): each token attends to itself.

    >>> student_attention(np.zeros((1, 2, 4)), np.full(4, 2.0)).round(3)
    array([[[1., 0.],
            [0., 1.]]])
    """
    return _attention(_fields(x, Q) + np.mean(Q) * SIGNS)  # p_l.Q/sqrt(d) = s_l 1_d.Q/d


def teacher_attention(problem, x, Q_star):
    r"""Mixing matrices T of the target y = T x; the teacher sees raw tokens.

    .. math::

        T = (1-\omega)\,\mathrm{softmax}(h^\star h^{\star\top}) + \omega A, \qquad
        h^\star_\ell = x_\ell\cdot Q^\star/\sqrt d

    Parameters
    ----------
    problem : PositionalSemantic
    x : array (n, 2, d)
    Q_star : array (d,)

    Returns
    -------
    array (n, 2, 2)
        Rows sum to 1.
    """
    return (1 - problem.omega) * _attention(_fields(x, Q_star)) + problem.omega * np.array(problem.A)


class GramMatrices(NamedTuple):
    """Inner products of the two tokens of each sample, divided by d, (n, 2, 2) each; t stands for x + p."""

    xx: np.ndarray
    xt: np.ndarray
    tt: np.ndarray


def gram_matrices(x):
    """Gram matrices of raw tokens x and encoded tokens x + p, without forming x + p.

    Parameters
    ----------
    x : array (n, 2, d)

    Returns
    -------
    GramMatrices
    """
    d = x.shape[-1]
    xx = x @ np.swapaxes(x, 1, 2) / d
    xp = _fields(x, np.ones(d))[:, :, None] * SIGNS / d  # x_l.p_k/d
    pp = np.outer(SIGNS, SIGNS) / d
    return GramMatrices(xx, xx + xp, xx + xp + np.swapaxes(xp, 1, 2) + pp)


def squared_error(T, S, gram):
    r"""Exact :math:`|T x - S (x+p)|^2/d` of each sample from its Gram matrices.

    Parameters
    ----------
    T, S : array (n, 2, 2)
        Mixing matrices of the target and attention matrices of the student.
    gram : GramMatrices

    Returns
    -------
    array (n,)
        Twice the contribution of a sample to the test error, which is divided by 2d.
    """
    TT = ((T @ gram.xx) * T).sum((1, 2))
    TS = ((T @ gram.xt) * S).sum((1, 2))
    SS = ((S @ gram.tt) * S).sum((1, 2))
    return TT - 2 * TS + SS


def _fields(x, Q):
    n, _, d = x.shape
    return (x.reshape(2 * n, d) @ Q).reshape(n, 2) / np.sqrt(d)


def _attention(h):
    scores = h[:, :, None] * h[:, None, :]
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return weights / weights.sum(axis=2, keepdims=True)
