"""The empirical risk of the attention layer as a function of its fields, on CPU or GPU."""

import numpy as np
import torch

from attn_lib.simulation.attention import SIGNS, gram_matrices

__all__ = ["AttentionRisk"]


class AttentionRisk:
    r"""Risks of several data sets, in the form that :func:`~attn_lib.simulation.lbfgs.minimise` asks for.

    A row of the 2 x 2 matrix S has one free entry, its diagonal one. The error of a row is a parabola in it:

    .. math::

        |(T x - S(x+p))_\ell|^2/d = c_\ell - 2 b_\ell a_\ell + g\, a_\ell^2, \qquad
        a_\ell = S_{\ell\ell} = \mathrm{logistic}(h_\ell (h_\ell - h_{\bar\ell})),

    where :math:`\bar\ell` is the other token. The coefficients are read off the Gram matrices once. Several
    runs may share a data set: parameters are (set, run, d), tokens (set, 2n, d), and one pass over the tokens
    serves all runs.

    Parameters
    ----------
    samples : iterable of Sample
        One training set each, all of one size.
    lam : float
        Ridge penalty.
    device : torch.device
    dtype : torch.dtype
    """

    def __init__(self, samples, lam, *, device, dtype):
        tokens, parabolas = [], []
        for x, T in samples:
            tokens.append(torch.as_tensor(x, device=device, dtype=dtype).flatten(0, 1))
            parabolas.append(_parabolas(T, gram_matrices(x)))
        self.lam = lam
        self.tokens = torch.stack(tokens)
        b, c, g = (np.stack(v)[:, None] for v in zip(*parabolas, strict=True))
        self.b, self.c, self.g = (torch.as_tensor(v, device=device, dtype=dtype) for v in (b, c, g))
        n, d = len(x), x.shape[-1]
        self.p = torch.as_tensor(np.tile(SIGNS, n) / d, device=device, dtype=dtype)
        self.x_scale = d**-0.5

    def fields(self, Q):
        """h_l = x_l.Q/sqrt(d) + s_l 1_d.Q/d; (set, run, d) to (set, run, 2n)."""
        few = Q.shape[-2] < 4  # a matter of speed: on a CPU, in double precision, up to twice either way
        products = (self.tokens @ Q.mT).mT if few else Q @ self.tokens.mT
        return products * self.x_scale + Q.sum(-1, keepdim=True) * self.p

    def steps(self, Q, D):
        """Fields are linear in Q: (h(D),), whatever Q."""
        return (self.fields(D),)

    def adjoint(self, g, Q=None):
        """The transpose of fields, whatever Q; (set, run, 2n) to (set, run, d)."""
        return (g @ self.tokens) * self.x_scale + (g @ self.p)[..., None]

    def loss(self, h):
        r"""Sum over samples of :math:`|y - f|^2/(2d)`, shape (set, run), and its gradient in the fields."""
        h = h.unflatten(-1, (-1, 2))
        other = h.flip(-1)
        a = torch.sigmoid(h * (h - other))
        slope = self.g * a - self.b  # half the derivative of the parabola
        loss = (self.c + (slope - self.b) * a).sum((-2, -1)) / 2
        slope = slope * a * (1 - a)
        gradient = slope * (2 * h - other) - (slope * h).flip(-1)
        return loss, gradient.flatten(-2)


def _parabolas(T, gram):
    """b, c (n, 2), g (n, 1): row l of the error is T_l x - t_other - a_l (t_l - t_other), t = x + p."""
    own, other = [0, 1], [1, 0]
    TT = np.einsum("nlk,nkj,nlj->nl", T, gram.xx, T)
    Tt = T @ gram.xt
    tt = gram.tt
    b = Tt[:, own, own] - Tt[:, own, other] - tt[:, own, other] + tt[:, other, other]
    c = TT - 2 * Tt[:, own, other] + tt[:, other, other]
    g = tt[:, 0, 0] - 2 * tt[:, 0, 1] + tt[:, 1, 1]
    return b, c, g[:, None]
