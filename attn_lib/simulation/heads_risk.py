r"""The empirical risk of attention with several heads, whose queries and keys may have different weights.

.. math::

    F = \sum_\mu\Big|\frac1H\sum_{h=1}^H \mathrm{softmax}(\beta z^\mu(M_h)) - Y^\mu\Big|^2 + \text{decay}, \qquad
    z_{ab}(M) = \frac{x_a^\top M x_b - \delta_{ab}\sum_i c_iM_{ii}}{\sqrt d},

with :math:`c_i` the variances of the components of a token. A tied head has :math:`M=WW^\top/\sqrt{pd}` and the decay
:math:`\lambda|W|^2`; an untied one

.. math::

    M = \frac{W_QW_K^\top}{\sqrt{pd}}, \qquad \frac\lambda2\big(|W_Q|^2+|W_K|^2\big).

In cross-attention the keys belong to other tokens, :math:`z_{ab}=x_a^\top My_b/\sqrt d`, and nothing is to be centred.

On M these are the same penalty, :math:`\lambda\sqrt{pd}` times the nuclear norm: the smallest
:math:`(|W_Q|^2+|W_K|^2)/2` at given :math:`W_QW_K^\top` is the sum of its singular values.
"""

import torch

from attn_lib.simulation._hardware import block_size

__all__ = ["HeadsRisk", "preactivations"]


def preactivations(x, M, variances, keys=None):
    """z_ab of matrices M that need not be symmetric.

    Parameters
    ----------
    x : tensor (..., n, T, d)
        Tokens.
    M : tensor (..., head, d, d)
    variances : tensor (d,)
        Of the components of a token, for the centring.
    keys : tensor (..., n, T, d), optional
        Tokens of the keys in cross-attention; x itself by default.

    Returns
    -------
    tensor (..., n, head, T, T)
    """
    n_heads, d, _ = M.shape[-3:]
    wide, size = M.transpose(-3, -2).flatten(-2), _block(x, n_heads)  # all heads side by side: one product
    parts = [
        (part.flatten(-3, -2) @ wide).unflatten(-1, (n_heads, d)).unflatten(-3, part.shape[-3:-1]).transpose(-3, -2)
        @ key.mT[..., None, :, :]
        for part, key in zip(*(v.split(size, dim=-3) for v in (x, x if keys is None else keys)), strict=True)
    ]
    z = torch.cat(parts, dim=-4)
    if keys is None:
        trace = (torch.diagonal(M, dim1=-2, dim2=-1) * variances).sum(-1)
        z = z - trace[..., None, :, None, None] * torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)
    return z / d**0.5


class HeadsRisk:
    """Risks of several data sets as functions of all weights, for :func:`~attn_lib.simulation.lbfgs.minimise`.

    Parameters are (set, heads d p) of a tied layer and (set, 2 heads d p) of an untied one: W of every head, or its W_Q
    and its W_K; fields are (set, n heads T T).

    Parameters
    ----------
    x : tensor (set, n, T, d)
        Tokens.
    Y : tensor (set, n, T, T)
        Labels.
    lam, beta : float
        Weight decay and inverse temperature.
    variances : tensor (d,)
        Of the components of a token.
    p : int
        Columns of every matrix of weights.
    n_heads : int
    tied : bool
    keys : tensor (set, n, T, d), optional
        Tokens of the keys in cross-attention.
    """

    def __init__(self, x, Y, lam, beta, variances, *, p, n_heads=1, tied=True, keys=None):
        self.x, self.Y, self.beta, self.variances, self.tied, self.keys = x, Y, beta, variances, tied, keys
        self.shape = (n_heads, 1 if tied else 2, x.shape[-1], p)
        self.field_shape = (x.shape[1], n_heads, x.shape[2], x.shape[2])
        self.lam = 2 * lam if tied else lam  # minimise() adds lam/2 times the square
        self.scale = (p * x.shape[-1]) ** -0.5

    def weights(self, Q):
        """W_Q and W_K of every head, the same when tied: two tensors (set, head, d, p)."""
        w = Q.unflatten(-1, self.shape)
        return w[:, :, 0], w[:, :, -1]

    def matrices(self, Q):
        """M of every head, (set, head, d, d)."""
        queries, keys = self.weights(Q)
        return queries @ keys.mT * self.scale

    def fields(self, Q):
        """All pre-activations, (set, n heads T T)."""
        return self._measured(self.matrices(Q))

    def steps(self, Q, D):
        """The coefficients of t and t^2 in the fields of Q + t D."""
        (queries, keys), (in_queries, in_keys) = self.weights(Q), self.weights(D)
        cross = (queries @ in_keys.mT + in_queries @ keys.mT) * self.scale
        return self._measured(cross), self._measured(self.matrices(D))

    def adjoint(self, g, Q):
        """Gradient of g.z in the weights."""
        queries, keys = self.weights(Q)
        G = self._transposed(g.unflatten(-1, self.field_shape)) * self.scale
        if self.tied:
            return ((G + G.mT) @ queries).flatten(1)
        return torch.stack([G @ keys, G.mT @ queries], dim=2).flatten(1)

    def loss(self, h):
        """Sum of the loss over samples, (set,), and its gradient in the fields."""
        A = torch.softmax(self.beta * h.unflatten(-1, self.field_shape), dim=-1)
        D = A.mean(2) - self.Y
        in_A = 2 / self.shape[0] * D[:, :, None]
        g = self.beta * A * (in_A - (A * in_A).sum(-1, keepdim=True))
        return (D**2).sum((1, 2, 3)), g.flatten(1)

    def errors(self, Q):
        """Loss of every sample, (set, n)."""
        A = torch.softmax(self.beta * self.fields(Q).unflatten(-1, self.field_shape), dim=-1)
        return ((A.mean(2) - self.Y) ** 2).sum((-2, -1))

    def _measured(self, M):
        return preactivations(self.x, M, self.variances, self.keys).flatten(1)

    def _transposed(self, g):
        """Sum over samples of g_ab dz_ab/dM, (set, n, head, T, T) to (set, head, d, d)."""
        d, n_heads = self.x.shape[-1], g.shape[2]
        total = self.x.new_zeros(len(self.x), d, n_heads * d)
        keys = self.x if self.keys is None else self.keys
        size = _block(self.x, n_heads)
        for x, key, part in zip(*(v.split(size, dim=1) for v in (self.x, keys, g)), strict=True):
            gx = (part @ key[:, :, None]).transpose(2, 3).flatten(3)  # (set, m, T, head d)
            total += x.flatten(1, 2).mT @ gx.flatten(1, 2)
        total = total.unflatten(2, (n_heads, d)).transpose(1, 2)
        if self.keys is not None:
            return total / d**0.5
        trace = torch.diagonal(g, dim1=-2, dim2=-1).sum((1, 3))
        return (total - trace[..., None, None] * self.variances.diag()) / d**0.5


def _block(x, n_heads):
    """Samples to handle at once: their products with all heads take so many numbers times the heads."""
    per_sample = x[..., :1, :, :].numel() * n_heads
    return block_size(x.device, per_sample, x.element_size())
