r"""Linear measurements of a symmetric matrix: how the data of Part II see S.

.. math:: z_{ab}(S) = \mathrm{Tr}[A_{ab}S], \qquad a \le b

The pre-activations of a sample are T(T+1)/2 such numbers. For an attention layer the sensing matrix of a pair is made
of two tokens; the risk asks for nothing more than these measurements and their transpose, so that other sensing
matrices can take their place.
"""

from typing import Protocol

import torch

from attn_lib.simulation._hardware import block_size

__all__ = ["Measurement", "TokenMeasurement", "pairs"]


class Measurement(Protocol):
    """What a risk asks of the measurements of several data sets; ``set`` stands for one axis, ``pair`` for T(T+1)/2."""

    def measure(self, S):
        """z of symmetric matrices S, (set, d, d) to (set, n, pair), the pairs in the order of :func:`pairs`."""

    def adjoint(self, g):
        """The transpose: sum of g_ab A_ab over samples and pairs, symmetric, (set, n, pair) to (set, d, d)."""


def pairs(n_tokens, device=None):
    """The pairs a <= b, in the order of the last axis of measurements.

    Parameters
    ----------
    n_tokens : int
    device : torch.device, optional
        The CPU by default.

    Returns
    -------
    tensor (2, T(T+1)/2)

    Examples
    --------
    >>> pairs(2)
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    return torch.triu_indices(n_tokens, n_tokens, device=device)


class TokenMeasurement:
    r"""Pre-activations of an attention layer,

    .. math::

        z_{ab}(S) = \frac{x_a^\top S x_b - \delta_{ab}\mathrm{Tr} S}{\sqrt d}, \qquad
        A_{ab} = \frac{1}{\sqrt d}\Big(\frac{x_a x_b^\top + x_b x_a^\top}{2} - \delta_{ab} I_d\Big).

    Both products take 2 n T d^2 operations and, in blocks of samples, no memory beyond their results.

    Parameters
    ----------
    x : tensor (set, n, T, d)
        Tokens.
    centring : str
        "trace" as above, or "empirical": instead of the trace, the mean over the n samples is subtracted from every
        z_ab.
    block : int, optional
        Samples handled at once; by default as many as a cache holds on a CPU, and on a GPU what fits in a quarter of
        its free memory. Results differ by rounding only.
    """

    def __init__(self, x, *, centring="trace", block=None):
        self.x, self.centring = x, centring
        n_set, _, n_tokens, d = x.shape
        self.a, self.b = pairs(n_tokens, x.device)
        self.pairs = pairs(n_tokens).T.tolist()
        self.block = block or block_size(x.device, n_set * n_tokens * d, x.element_size())

    def measure(self, S):
        """z, (set, d, d) to (set, n, pair)."""
        z = torch.cat([self._products(x, S) for x in self.x.split(self.block, dim=1)], dim=1)
        if self.centring == "empirical":
            z = z - z.mean(1, keepdim=True)
        else:
            z = z - (self.a == self.b) * torch.einsum("sii->s", S)[:, None, None]
        return z / S.shape[-1] ** 0.5

    def adjoint(self, g):
        """Sum of g_ab A_ab, (set, n, pair) to (set, d, d)."""
        if self.centring == "empirical":
            g = g - g.mean(1, keepdim=True)
        n_set, _, _, d = self.x.shape
        total = self.x.new_zeros(n_set, d, d)
        for x, part in zip(self.x.split(self.block, dim=1), g.split(self.block, dim=1), strict=True):
            gx = torch.zeros_like(x)
            for pair, (a, b) in enumerate(self.pairs):  # total is made symmetric below
                gx[:, :, b].addcmul_(part[..., pair, None], x[:, :, a])
            total.baddbmm_(x.flatten(1, 2).mT, gx.flatten(1, 2))
        if self.centring == "trace":
            trace = (g * (self.a == self.b)).sum((1, 2))
            total -= trace[:, None, None] * torch.eye(d, dtype=total.dtype, device=total.device)
        return (total + total.mT) / (2 * d**0.5)

    def _products(self, x, S):
        """x_a^T S x_b of a block, (set, m, pair)."""
        Sx = (x.flatten(1, 2) @ S).unflatten(1, x.shape[1:3])
        return (x @ Sx.mT)[..., self.a, self.b]
