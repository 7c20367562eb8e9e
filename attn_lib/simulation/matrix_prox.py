r"""Proximal operator of one sample of full-rank attention, and what message passing needs from it.

For a cavity field :math:`\omega` of the T(T+1)/2 pre-activations of a sample,

.. math::

    z = \arg\min_z\Big[\ell(z) + \frac{(z-\omega)^\top C^{-1}(z-\omega)}{2\Sigma}\Big], \qquad
    \ell(z) = \sum_{ab}\big(Y_{ab}-\mathrm{softmax}(\beta z)_{ab}\big)^2,

by Newton's method for all samples at once. The objective may have two wells, one near :math:`\omega` and one near the
fields that reproduce the label; it is minimised from both, and the deeper well counts.
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
        a, b = pairs(n_tokens).to(labels.device)
        rows = torch.zeros(n_tokens, n_tokens, len(a), dtype=labels.dtype, device=labels.device)
        rows[a, b, torch.arange(len(a))] = rows[b, a, torch.arange(len(a))] = 1.0  # z as rows, from the pairs
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
            Newton's method has not converged for some sample; ``partial`` is z.
        """
        wells = [self._descend(start, omega, Sigma) for start in (omega, self.interpolating)]
        values = [self._objective(z, omega, Sigma) for z in wells]
        return torch.where((values[1] < values[0])[:, None], *wells[::-1])

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

    def _descend(self, start, omega, Sigma):
        """Newton with backtracking; where the objective is not convex, Gauss-Newton."""
        z, active = start.clone(), torch.arange(len(start), device=start.device)
        for _ in range(MAX_ITER):
            here, centre, metric = z[active], omega[active], self.metric[active] / Sigma
            gradient = self.gradient(here, active) + _times(metric, here - centre)
            first, second = self._hessian(here, active)
            step = -torch.linalg.solve(metric + first + second, gradient)
            uphill = (step * gradient).sum(1) >= 0
            if uphill.any():
                step[uphill] = -torch.linalg.solve((metric + first)[uphill], gradient[uphill])
            z[active] = self._backtracked(here, step, centre, Sigma, active)
            active = active[step.abs().amax(1) > TOLERANCE]
            if not len(active):
                return z
        raise ConvergenceError(f"the prox of {len(active)} samples has not converged", z)

    def _backtracked(self, z, step, omega, Sigma, samples):
        """z + step, the step halved until the objective does not increase; z itself where it always does."""
        before = self._objective(z, omega, Sigma, samples)
        new, left, length = z.clone(), torch.arange(len(z), device=z.device), 1.0
        for _ in range(HALVINGS):
            trial = z[left] + length * step[left]
            after = self._objective(trial, omega[left], Sigma, samples[left])
            accepted = after <= before[left] + 1e-13 * (1 + before[left])  # rounding, at the end
            new[left[accepted]] = trial[accepted]
            left, length = left[~accepted], length / 2
            if not len(left):
                break
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
