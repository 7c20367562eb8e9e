"""Measurements on a trained layer that need its training set again."""

import numpy as np
import torch

from attn_lib.simulation._hardware import chosen_device
from attn_lib.simulation.lbfgs import value_and_gradient
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample

__all__ = ["lowest_curvature"]


def lowest_curvature(trained, *, step=1e-4, device=None):
    r"""Smallest eigenvalue of the Hessian of the empirical risk at each learned Q.

    .. math:: \min_{|e|=1} e^\top \nabla^2_Q\Big[\sum_\mu \frac{|y^\mu-f_Q(x^\mu)|^2}{2d} + \frac\lambda2|Q|^2\Big] e

    Parameters
    ----------
    trained : TrainedAttention
        Of moderate d: the Hessian is a dense d x d matrix.
    step : float
        Of the central differences of the exact gradient, in the units of Q.
    device : str, optional
        "cpu", "cuda", "cuda:1"...; by default "cuda" where there is one. One seed at a time: the 2 d gradients of a
        Hessian fill a GPU.

    Returns
    -------
    array (seed,)
        Divided by lambda; positive at a stable minimum.

    Accuracy
    --------
    About 1e-6: differences of order step^2 times a fourth derivative.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> from attn_lib.simulation.erm import train_positional_semantic
    >>> problem = PositionalSemantic(alpha=2.0, omega=0.3)
    >>> trained = train_positional_semantic(problem, d=40, seeds=[0], device="cpu")
    >>> bool(lowest_curvature(trained)[0] > 0)
    True
    """
    problem, settings, device = trained.problem, trained.settings, torch.device(chosen_device(device))
    lowest = []
    for seed, Q, Q_star in zip(trained.seeds, trained.Q, trained.Q_star, strict=True):
        sample = draw_sample(problem, Q_star, n=settings.n, seed=int(seed))
        risk = AttentionRisk([sample], problem.lam, device=device, dtype=torch.float64)
        Q, kicks = risk.tokens.new_tensor(Q), step * torch.eye(settings.d, device=device, dtype=torch.float64)
        forth, back = (value_and_gradient(risk, points[None])[1][0] for points in (Q + kicks, Q - kicks))
        hessian = (forth - back) / (2 * step)
        lowest.append(torch.linalg.eigvalsh((hessian + hessian.mT) / 2)[0].item() / problem.lam)
    return np.array(lowest)
