r"""Proximal operator of one sample of full-rank attention, and what message passing needs from it.

For a cavity field :math:`\omega` of the T(T+1)/2 pre-activations of a sample,

.. math::

    z = \arg\min_z\Big[\ell(z) + \frac{(z-\omega)^\top C^{-1}(z-\omega)}{2\Sigma}\Big], \qquad
    \ell(z) = \sum_{ab}\big(Y_{ab}-\mathrm{softmax}(\beta z)_{ab}\big)^2,

by Newton's method for all samples at once. The objective may have two wells, one near :math:`\omega` and one near the
fields that reproduce the label; it is minimised from both at once, and the deeper well counts.

Only samples that have not converged take the next step: that is what costs waits for a GPU, three a Newton step, and
one more for each time that a step is halved.
"""

import torch

from attn_lib.fixed_point import ConvergenceError
from attn_lib.simulation.sensing import pairs
from attn_lib.simulation.single_head_risk import AttentionLoss

__all__ = ["AttentionProx"]

TOLERANCE = 1e-9  # of a Newton step, which squares from one to the next
MAX_ITER = 100
HALVINGS = 30


class AttentionProx:
    """The proximal problems of a training set.

    Parameters
    ----------
    labels : tensor (n, T, T)
        Attention matrices Y.
    beta : float
        Inverse temperature of the student.
    C : tensor (n, pair, pair)
        Metric of every sample, positive definite: twice the scalar products of its measurements, divided by d.
    """

    def __init__(self, labels, beta, C):
        self.labels, self.beta, self.C = labels, beta, C
        self.metric = torch.linalg.inv(C)
        n_tokens = labels.shape[-1]
        a, b = pairs(n_tokens, labels.device)
        rows = torch.zeros(n_tokens, n_tokens, len(a), dtype=labels.dtype, device=labels.device)
        pair = torch.arange(len(a), device=labels.device)
        rows[a, b, pair] = rows[b, a, pair] = 1.0  # z as rows, from the pairs
        self.rows = rows
        self.curvature = torch.einsum("abi,acj->abcij", rows, rows).flatten(0, 2).flatten(1)
        logs = labels.clamp_min(1e-300).log()
        logs = logs - logs[:, :, :1] + logs[:, :1, :].mT  # softmax forgets a constant of each row; fields are symmetric
        self.interpolating = logs[:, a, b] / beta

    def solve(self, omega, Sigma):
        """The deeper one of the two minima.

        Parameters
        ----------
        omega : tensor (n, pair)
        Sigma : float
            > 0.

        Returns
        -------
        z : tensor (n, pair)

        Raises
        ------
        ConvergenceError
            Newton's method has not converged for some sample; ``partial`` is z from both starts, (2 n, pair).
        """
        samples = torch.arange(len(omega), device=omega.device).repeat(2)
        z = self._descend(torch.cat([omega, self.interpolating]), omega[samples], Sigma, samples)
        values = self._objective(z, omega[samples], Sigma, samples).chunk(2)
        return torch.where((values[1] < values[0])[:, None], *z.chunk(2)[::-1])

    def response(self, z, Sigma):
        r"""Derivative of g in omega.

        .. math:: \partial_\omega g = (1+\Sigma HC)^{-1}H, \qquad H = \nabla^2\ell(z)

        Parameters
        ----------
        z : tensor (n, pair)
            Minimisers.
        Sigma : float

        Returns
        -------
        tensor (n, pair, pair)
        """
        H = sum(self._hessian(z))
        one = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
        return torch.linalg.solve(one + Sigma * H @ self.C, H)

    def gradient(self, z, samples=slice(None)):
        """Gradient of the loss, of all samples or of some.

        Parameters
        ----------
        z : tensor (n, pair)
        samples : index, optional

        Returns
        -------
        tensor (n, pair)
        """
        return AttentionLoss(self.labels[None, samples], self.beta).value_and_gradient(z[None])[1][0]

    def loss(self, z, samples=slice(None)):
        """Loss of all samples or of some.

        Parameters
        ----------
        z : tensor (n, pair)
        samples : index, optional

        Returns
        -------
        tensor (n,)
        """
        return AttentionLoss(self.labels[None, samples], self.beta).errors(z[None])[0]

    def _objective(self, z, omega, Sigma, samples=slice(None)):
        moved = z - omega
        return self.loss(z, samples) + _form(self.metric[samples], moved, moved) / (2 * Sigma)

    def _descend(self, start, omega, Sigma, samples):
        """Newton with backtracking; where the objective is not convex, Gauss-Newton."""
        z, active = start.clone(), torch.arange(len(start), device=start.device)
        for _ in range(MAX_ITER):
            here, centre, data = z[active], omega[active], samples[active]
            metric = self.metric[data] / Sigma
            gradient = self.gradient(here, data) + _times(metric, here - centre)
            first, second = self._hessian(here, data)
            step = -torch.linalg.solve(metric + first + second, gradient)
            uphill = ((step * gradient).sum(1) >= 0).nonzero()[:, 0]
            if len(uphill):
                step[uphill] = -torch.linalg.solve((metric + first)[uphill], gradient[uphill])
            z[active] = self._backtracked(here, step, centre, Sigma, data)
            active = active[step.abs().amax(1) > TOLERANCE]
            if not len(active):
                return z
        raise ConvergenceError(f"the prox of {len(samples[active].unique())} samples has not converged", z)

    def _backtracked(self, z, step, omega, Sigma, samples):
        """z + step, the step halved until the objective does not increase; z itself where it always does."""
        before = self._objective(z, omega, Sigma, samples)
        limit = before + 1e-13 * (1 + before)  # rounding, at the end
        new, left = z + step, torch.arange(len(z), device=z.device)
        for halvings in range(1, HALVINGS + 1):
            after = self._objective(new[left], omega[left], Sigma, samples[left])
            left = left[~(after <= limit[left])]
            if not len(left):
                break
            new[left] = z[left] + (step[left] / 2**halvings if halvings < HALVINGS else 0)
        return new

    def _hessian(self, z, samples=slice(None)):
        """Hessian of the loss in two parts, that of the linearised A (positive) and the rest."""
        A = torch.softmax(self.beta * torch.einsum("ni,abi->nab", z, self.rows), dim=-1)
        R = 2 * (A - self.labels[samples])
        slope = A * (R - (A * R).sum(-1, keepdim=True))
        J = torch.diag_embed(A) - A[..., :, None] * A[..., None, :]
        cross = slope[..., :, None] * A[..., None, :]
        parts = 2 * J @ J, torch.diag_embed(slope) - cross - cross.mT
        shape = len(z), z.shape[1], z.shape[1]
        return tuple(self.beta**2 * (part.flatten(1) @ self.curvature).reshape(shape) for part in parts)


def _times(matrices, vectors):
    return (matrices @ vectors[..., None])[..., 0]


def _form(matrices, left, right):
    return (left * _times(matrices, right)).sum(-1)
