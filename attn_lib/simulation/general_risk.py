r"""Data and empirical risk of the attention layer with any number of tokens, ranks and token covariances.

As for two tokens, the error of a sample is exact once its L x L Gram matrices are known
(:func:`~attn_lib.simulation.attention.squared_error`). With t = x + p it is Tx - S(x+p) = -(D t + T p), D = S - T, and
the gradient in the fields goes through the attention matrix S, row by row:

.. math::

    \ell &= |Tx-S(x+p)|^2/(2d) = \tfrac12\mathrm{Tr}[D G_{tt} D^\top] + \mathrm{Tr}[T G_{pt} D^\top]
    + \tfrac12\mathrm{Tr}[T G_{pp} T^\top], \\
    R &= \partial_S\ell = D G_{tt} + T G_{pt}, \qquad
    B_{\ell k} = S_{\ell k}\Big(R_{\ell k}-\sum_j S_{\ell j}R_{\ell j}\Big), \qquad
    \partial_{h_\ell}\ell = \sum_k (B_{\ell k}+B_{k\ell})\,h_k .

No term is much larger than the loss, so that rounding does not limit how far it can be minimised.
In the arrays, tokens are x (n, L, d), parameters (d, r), fields (n, L, r).
"""

import numpy as np
import torch
from scipy.special import softmax

from attn_lib.simulation._checks import is_integer, require
from attn_lib.simulation.attention import GramMatrices
from attn_lib.simulation.sampling import Sample, generator

__all__ = ["GeneralRisk", "PositionalEncoding", "draw_tokens", "general_attention", "general_gram", "token_deviations"]


class PositionalEncoding:
    r"""Positions p_l with the wanted inner products, spread evenly over the eigenspaces of the covariances.

    .. math:: p_\ell = \sum_j F_{\ell j}\,u_j, \qquad F F^\top = P, \qquad u_j\cdot u_k = \delta_{jk}

    In every group of coordinates the axes u_j are the first cosine waves, so that group g contributes exactly its
    fraction of coordinates to u_j.u_k. The first axis is 1_d/sqrt(d): two tokens get p_1 = -p_2 = 1_d/sqrt(d).
    ``axes`` (d, k) holds the u_j, as many as the rank of P, and ``vectors`` (L, d) the positions.

    Parameters
    ----------
    problem : GeneralAttention
    d : int
    """

    def __init__(self, problem, d):
        values, directions = np.linalg.eigh(np.array(problem.positions))
        kept = np.flatnonzero(values > 1e-12 * values[-1])[::-1]
        F = directions[:, kept] * np.sqrt(values[kept])
        F *= np.where(F[:1] < 0, -1, 1)
        sizes = _group_sizes(problem, d, smallest=max(1, len(kept)))
        waves = [np.cos(np.pi * np.outer(np.arange(size) + 0.5, np.arange(len(kept))) / size) for size in sizes]
        self.axes = np.concatenate(waves) * np.where(np.arange(len(kept)) > 0, np.sqrt(2 / d), np.sqrt(1 / d))
        self.vectors = F @ self.axes.T


def token_deviations(problem, d):
    """Standard deviation of every component of every token; eigenvalue groups are blocks of coordinates.

    Parameters
    ----------
    problem : GeneralAttention
    d : int
        Group g gets the fraction ``spectrum_weights[g]`` of the d coordinates, rounded.

    Returns
    -------
    array (L, d)

    Raises
    ------
    ValueError
        d is not an integer >= 2, or too small for every group to have a coordinate.

    Examples
    --------
    >>> from attn_lib.problems import GeneralAttention
    >>> layer = GeneralAttention(
    ...     alpha=1, omega=0, A=[[1, 0], [0, 1]], spectrum_weights=[0.25, 0.75], spectrum_values=[[1, 4], [9, 1]]
    ... )
    >>> token_deviations(layer, 4)
    array([[1., 2., 2., 2.],
           [3., 1., 1., 1.]])
    """
    return np.sqrt(np.repeat(problem.spectrum_values, _group_sizes(problem, d), axis=1))


def draw_tokens(problem, Q_star, *, n, seed, stream="train"):
    """Draw n samples of L tokens and the mixing matrices T of their targets y = T x.

    Parameters
    ----------
    problem : GeneralAttention
    Q_star : array (d, t)
    n : int
        Number of samples, >= 1; the first samples of a larger n are those of a smaller one.
    seed : int
        >= 0. For two isotropic tokens the data are those of :func:`~attn_lib.simulation.sampling.draw_sample`.
    stream : str
        "train", or "test" for fresh samples.

    Returns
    -------
    Sample
        x (n, L, d) and T (n, L, L).
    """
    require(is_integer(n) and n >= 1, "n", n, "an integer >= 1")
    d = len(Q_star)
    x = generator(seed, stream).standard_normal((n, problem.n_tokens, d))
    x *= token_deviations(problem, d)
    T = (1 - problem.omega) * general_attention(x, Q_star) + problem.omega * np.array(problem.A)
    return Sample(x, T)


def general_attention(tokens, Q):
    r"""Attention matrices :math:`\mathrm{softmax}(h h^\top)` with the fields :math:`h_\ell = Q^\top t_\ell/\sqrt d`.

    Parameters
    ----------
    tokens : array (n, L, d)
        Raw tokens x for the teacher, x + p for the student.
    Q : array (d, r)

    Returns
    -------
    array (n, L, L)
        Rows sum to 1.
    """
    h = tokens @ Q / len(Q) ** 0.5
    return softmax(h @ h.swapaxes(1, 2), axis=2)


def general_gram(x, p):
    """Gram matrices of raw tokens x and encoded tokens t = x + p.

    Parameters
    ----------
    x : array (n, L, d)
    p : array (L, d)

    Returns
    -------
    GramMatrices
        (n, L, L) each, divided by d.
    """
    d = x.shape[-1]
    xx, xp, pp = x @ x.swapaxes(1, 2) / d, x @ p.T / d, p @ p.T / d
    return GramMatrices(xx, xx + xp, xx + xp + xp.swapaxes(1, 2) + pp)


class GeneralRisk:
    """Risks of several data sets in the form that :func:`~attn_lib.simulation.lbfgs.minimise` asks for.

    Parameters are vectors (set, run, d r), the rows of Q (d, r) one after the other; fields are (set, run, n L r).

    Parameters
    ----------
    samples : iterable of Sample
        One training set each, all of one size.
    p : array (L, d)
        Positions, which the student sees and the teacher does not.
    rank : int
        r.
    lam : float
        Ridge penalty.
    device : torch.device
    dtype : torch.dtype
    """

    def __init__(self, samples, p, *, rank, lam, device, dtype):
        kind = {"device": device, "dtype": dtype}
        tokens, parts = [], []
        for x, T in samples:
            n, L, d = x.shape
            gram = general_gram(x, p)
            tokens.append(torch.as_tensor(((x + p) / d**0.5).reshape(n * L, d), **kind))
            parts.append((T, gram.tt, T @ (gram.tt - gram.xt), ((T @ (p @ p.T / d)) * T).sum() / 2))
        self.lam = lam
        self.shape, self.field_shape = (d, rank), (n, L, rank)
        self.tokens = torch.stack(tokens)
        parts = (np.stack(part)[:, None] for part in zip(*parts, strict=True))
        self.T, self.tt, self.T_pt, self.constant = (torch.as_tensor(part, **kind) for part in parts)

    def fields(self, Q):
        """h_l = Q^T (x_l + p_l)/sqrt(d); (set, run, d r) to (set, run, n L r)."""
        return torch.einsum("snd,sadr->sanr", self.tokens, Q.unflatten(-1, self.shape)).flatten(2)

    def steps(self, Q, D):
        """Fields are linear in Q: (h(D),), whatever Q."""
        return (self.fields(D),)

    def adjoint(self, g, Q=None):
        """The transpose of fields, whatever Q; (set, run, n L r) to (set, run, d r)."""
        g = g.unflatten(-1, (-1, self.shape[1]))
        return torch.einsum("snd,sanr->sadr", self.tokens, g).flatten(2)

    def loss(self, h):
        r"""Sum over samples of :math:`|y - f|^2/(2d)`, shape (set, run), and its gradient in the fields."""
        h = h.unflatten(-1, self.field_shape)
        S = torch.softmax(h @ h.mT, dim=-1)
        D = S - self.T
        R = D @ self.tt + self.T_pt
        loss = self.constant + ((R + self.T_pt) * D).sum((-3, -2, -1)) / 2
        B = S * (R - (S * R).sum(-1, keepdim=True))
        return loss, ((B + B.mT) @ h).flatten(2)


def _group_sizes(problem, d, smallest=1):
    """Numbers of coordinates of the eigenvalue groups, of sum d."""
    require(is_integer(d) and d >= 2, "d", d, "an integer >= 2")
    sizes = np.diff(np.rint(np.cumsum((0, *problem.spectrum_weights)) * d).astype(int))
    allowed = f"large enough for every group of spectrum_weights to have >= {smallest} coordinates"
    require((sizes >= smallest).all(), "d", d, allowed)
    return sizes
