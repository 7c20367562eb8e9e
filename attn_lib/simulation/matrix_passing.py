r"""Approximate message passing for a matrix: full-rank attention at finite d.

The data see S through :math:`z^\mu_{ab}(S)=\mathrm{Tr}[A^\mu_{ab}S]` (:mod:`~attn_lib.simulation.sensing`). From
:math:`g^{-1}=0` one iteration is

.. math::

    \omega^t_\mu &= z_\mu(S^t) + \Sigma^t C_\mu g^{t-1}_\mu, \qquad
    z^t_\mu = \mathrm{prox}(\omega^t_\mu; \Sigma^t), \qquad g^t_\mu = \nabla\ell_\mu(z^t_\mu), \\
    \hat\Sigma^t &= \frac{2}{d^2}\sum_\mu\mathrm{Tr}\Big[C_\mu\frac{\partial g^t_\mu}{\partial\omega}\Big], \qquad
    R^t = \hat\Sigma^t S^t - \frac2d\sum_\mu\sum_{a\le b} g^t_{\mu,ab}A^\mu_{ab}, \\
    \Lambda^t &= (1-\gamma)\hat\Sigma^t + \gamma\Lambda^{t-1}, \qquad
    S^{t+1} = \frac{(R^t - 2\tilde\lambda)_+}{\Lambda^t}, \qquad
    \Sigma^{t+1} = \frac{2}{d^2\Lambda^t}\sum_{i\le j}\frac{(r_i-2\tilde\lambda)_+-(r_j-2\tilde\lambda)_+}{r_i-r_j},

with :math:`\tilde\lambda=\sqrt\kappa\lambda`, the function :math:`(\cdot)_+` acting on the eigenvalues :math:`r_i` of
R, and the scalar products of the measurements of a sample

.. math:: C_{\mu,(ab)(cd)} = \frac2d\,\mathrm{Tr}[A^\mu_{ab}A^\mu_{cd}] \to (1+\delta_{ab})\,\delta_{(ab)(cd)} .

At a fixed point z = z(S), and S is a stationary point, among positive semidefinite matrices, of the risk that training
minimises: :math:`\sum_\mu\ell_\mu(z_\mu(S)) + d\tilde\lambda\,\mathrm{Tr}S`.
"""

from typing import NamedTuple

import numpy as np
import torch

from attn_lib.simulation.sensing import pairs

__all__ = ["Iterate", "message_passing", "soft_threshold", "token_metric"]

SMALLEST = 1e-8  # of a response: 0 where the threshold is above the spectrum, but the prox divides by it


class Iterate(NamedTuple):
    r"""State of message passing at time t.

    Parameters
    ----------
    S : tensor (d, d)
    Sigma : float
        Response :math:`\Sigma^t`, used from here on.
    R : tensor (d, d) or None
        The matrix whose soft threshold is S; None at t = 0.
    Sigma_hat : float or None
        :math:`\hat\Sigma^{t-1}`.
    loss : float
        Sum over samples of the loss at z(S^t).
    """

    S: torch.Tensor
    Sigma: float
    R: torch.Tensor | None
    Sigma_hat: float | None
    loss: float


def token_metric(x):
    r"""Scalar products of the measurements of each sample, :math:`\frac2d\mathrm{Tr}[A_{ab}A_{cd}]`.

    .. math::

        C_{(ab)(cd)} = \frac{1}{d^2}\big(G_{ac}G_{bd} + G_{ad}G_{bc} - 2\delta_{ab}G_{cd} - 2\delta_{cd}G_{ab}
        + 2d\,\delta_{ab}\delta_{cd}\big), \qquad G = x x^\top

    Parameters
    ----------
    x : tensor (n, T, d)
        Tokens.

    Returns
    -------
    tensor (n, pair, pair)

    Examples
    --------
    >>> x = torch.randn(1, 2, 10**5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> token_metric(x).round(decimals=1).abs()
    tensor([[[2., 0., 0.],
             [0., 1., 0.],
             [0., 0., 2.]]], dtype=torch.float64)
    """
    d = x.shape[-1]
    a, b = pairs(x.shape[1], x.device)
    G = x @ x.mT
    same = (a == b).to(x.dtype)
    crossed = G[:, a[:, None], a] * G[:, b[:, None], b] + G[:, a[:, None], b] * G[:, b[:, None], a]
    traces = same[:, None] * G[:, a, b][:, None, :]
    return (crossed - 2 * (traces + traces.mT) + 2 * d * same[:, None] * same) / d**2


def soft_threshold(R, threshold):
    r"""Spectral soft threshold of a symmetric matrix, and its divergence.

    .. math::

        (R-\vartheta)_+ = O\,\mathrm{diag}\big((r_i-\vartheta)_+\big)O^\top, \qquad
        \mathrm{div} = \sum_{i\le j}\frac{(r_i-\vartheta)_+-(r_j-\vartheta)_+}{r_i-r_j}

    The divergence is the trace of the derivative in the space of symmetric matrices; a divided difference of two equal
    arguments is the derivative.

    Parameters
    ----------
    R : tensor (d, d)
    threshold : float

    Returns
    -------
    tensor (d, d), float

    Examples
    --------
    >>> value, divergence = soft_threshold(torch.diag(torch.tensor([3.0, 1.0, 0.0])), 0.5)
    >>> value.diag(), round(divergence, 5)
    (tensor([2.5000, 0.5000, 0.0000]), 4.33333)
    """
    r, vectors = torch.linalg.eigh(R)
    above, kept = (r - threshold).clamp_min(0), r > threshold
    mixed = torch.where(kept[:, None] & ~kept, above[:, None] / (r[:, None] - r), 0).sum()
    n_kept = kept.sum()
    return vectors * above @ vectors.mT, float(n_kept * (n_kept + 1) / 2 + mixed)


def message_passing(measurement, prox, S, *, Sigma, threshold, damping=0.0):
    r"""The iteration, without an end.

    Parameters
    ----------
    measurement : Measurement
        Of one data set.
    prox : AttentionProx
        Of the same samples.
    S : tensor (d, d)
        S^0, independent of the data.
    Sigma : float
        :math:`\Sigma^0` > 0.
    threshold : float
        :math:`2\tilde\lambda = 2\sqrt\kappa\lambda`.
    damping : float
        Weight of the old value of :math:`\Lambda`, in [0, 1).

    Yields
    ------
    Iterate
        At t = 0, 1, ...

    Raises
    ------
    FloatingPointError
        :math:`\Lambda` is not a positive number.
    ConvergenceError
        A proximal problem could not be solved.
    """
    d, g, scale, R, Sigma_hat = len(S), 0.0, None, None, None
    while True:
        omega = measurement.measure(S[None])[0]
        yield Iterate(S, Sigma, R, Sigma_hat, prox.loss(omega).sum().item())
        if R is not None:
            omega = omega + Sigma * (prox.C @ g[..., None])[..., 0]
        z = prox.solve(omega, Sigma)
        g = prox.gradient(z)
        Sigma_hat = 2 / d**2 * float((prox.C * prox.response(z, Sigma)).sum())
        R = Sigma_hat * S - 2 / d * measurement.adjoint(g[None])[0]
        scale = Sigma_hat if scale is None else (1 - damping) * Sigma_hat + damping * scale
        if not 0 < scale < np.inf:
            raise FloatingPointError(f"Lambda = {scale}")
        value, divergence = soft_threshold(R, threshold)
        S, Sigma = value / scale, max(2 / d**2 / scale * divergence, SMALLEST)
