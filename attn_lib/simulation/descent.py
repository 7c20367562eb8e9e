r"""Full-batch gradient descent and Adam for many risks at once.

.. math:: Q_{t+1} = Q_t - \eta\,\nabla F(Q_t)

Each run of the batch diverges on its own: it is frozen where it does while the others go on.
"""

import math
from typing import NamedTuple

import torch

from attn_lib.simulation.lbfgs import Minimum, value_and_gradient

__all__ = ["OPTIMISERS", "Path", "descend", "largest_curvature", "minimise_by_adam"]

LIMIT = 2.0


class Path(NamedTuple):
    """What :func:`descend` returns.

    Q (set, run, d), gradient_norm and diverged (set, run) are the state at the end. path (4, set, run, record) holds
    F(Q_t), the sum of the components of Q_t, Q_t.Q* and ``|Q_t|**2``.
    """

    Q: torch.Tensor
    gradient_norm: torch.Tensor
    diverged: torch.Tensor
    path: torch.Tensor


def descend(risk, Q, Q_star, *, steps, update):
    """Follow every run from Q, in steps that an optimiser makes from the gradient.

    A run diverges when its risk is not finite or exceeds twice the larger of F(Q_0) and F(0): neither gradient descent
    below its largest stable step nor Adam with a small one comes near that. It is frozen at the last Q before.

    Parameters
    ----------
    risk : AttentionRisk
    Q : tensor (set, run, d)
    Q_star : tensor (set, 1, d)
        Targets, to record the overlaps.
    steps : list of int
        Steps after which to record, increasing; the last one ends the descent.
    update : callable
        (Q, gradient, t) to the next Q, with t counted from 1; an entry of ``OPTIMISERS`` called with its learning rate.

    Returns
    -------
    Path
    """
    value, gradient = value_and_gradient(risk, Q)
    at_zero, _ = value_and_gradient(risk, torch.zeros_like(Q))
    limit = LIMIT * torch.maximum(value, at_zero)
    diverged = ~(value.isfinite() & gradient.isfinite().all(dim=-1))
    path = []
    for t in range(steps[-1] + 1):
        if t > 0:
            trial = update(Q, gradient, t)
            trial_value, trial_gradient = value_and_gradient(risk, trial)
            diverged = diverged | ~((trial_value <= limit) & trial_value.isfinite())
            frozen = diverged[..., None]
            Q, gradient = torch.where(frozen, Q, trial), torch.where(frozen, gradient, trial_gradient)
            value = torch.where(diverged, value, trial_value)
        if t == steps[len(path)]:
            path.append(torch.stack([value, Q.sum(-1), (Q * Q_star).sum(-1), (Q * Q).sum(-1)]))
    return Path(Q, gradient.norm(dim=-1), diverged, torch.stack(path, dim=-1))


def minimise_by_adam(risk, Q, *, tolerance, max_iter, learning_rate, report=None):
    """Minimise by Adam, its learning rate falling to 0 over max_iter steps as half a cosine wave.

    The counterpart of :func:`~attn_lib.simulation.lbfgs.minimise`, with the same result: a run stops when the norm of
    its gradient is at most tolerance, or with the last step.

    Parameters
    ----------
    risk : FieldRisk
    Q : tensor (..., D)
        Start of every run.
    tolerance : float
        On the Euclidean norm of the gradient of F.
    max_iter : int
        Number of steps in which the learning rate reaches 0.
    learning_rate : float
        Of the first step.
    report : callable, optional
        Called after every step with its number and the gradient norms.

    Returns
    -------
    Minimum
    """
    update = _adam(learning_rate)
    value, gradient = value_and_gradient(risk, Q)
    norm = gradient.norm(dim=-1)
    n_iter = torch.zeros_like(norm, dtype=torch.int64)
    for t in range(1, max_iter + 1):
        running = norm > tolerance
        if not running.any():
            break
        weight = (1 + math.cos(math.pi * (t - 1) / max_iter)) / 2
        Q = torch.where(running[..., None], torch.lerp(Q, update(Q, gradient, t), weight), Q)
        value, gradient = value_and_gradient(risk, Q)
        norm = gradient.norm(dim=-1)
        n_iter += running
        if report:
            report(t, norm)
    return Minimum(Q, value, norm, n_iter, norm <= tolerance)


def largest_curvature(risk, Q, *, n_iter=50):
    r"""Largest absolute curvature of the risk at Q, by power iteration on its Hessian.

    .. math:: \max_{|e|=1} |e^\top\nabla^2F(Q)\,e|

    Parameters
    ----------
    risk : AttentionRisk
    Q : tensor (set, run, d)
    n_iter : int
        Products with the Hessian, exact ones: the gradient of the scalar product of the gradient with a fixed vector.

    Returns
    -------
    tensor (set, run)
        Near a minimum, gradient descent is stable for learning rates below 2 over this number.

    Accuracy
    --------
    From below; a few percent at the default, since the largest eigenvalues lie close together.
    """
    Q = Q.clone().requires_grad_()
    _, gradient = value_and_gradient(risk, Q)
    direction = torch.randn(Q.shape, generator=torch.Generator().manual_seed(0), dtype=Q.dtype).to(Q.device)
    for _ in range(n_iter):
        direction = direction / direction.norm(dim=-1, keepdim=True)
        (direction,) = torch.autograd.grad((gradient * direction).sum(), Q, retain_graph=True)
    return direction.norm(dim=-1)


def _gradient_descent(learning_rate):
    return lambda Q, gradient, t: Q - learning_rate * gradient


def _adam(learning_rate, beta1=0.9, beta2=0.999):
    a, b = 0.0, 0.0

    def update(Q, gradient, t):
        nonlocal a, b
        a = beta1 * a + (1 - beta1) * gradient
        b = beta2 * b + (1 - beta2) * gradient**2
        return Q - learning_rate * a / (1 - beta1**t) / ((b / (1 - beta2**t)).sqrt() + 1e-8)

    return update


OPTIMISERS = {"gd": _gradient_descent, "adam": _adam}
