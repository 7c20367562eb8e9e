r"""Least squares in the logits of the labels, at finite d: where a single head interpolates, and where it recovers.

A label tells the noisy field of the target but for a constant. Weights have training loss 0 if and only if their field
equals it, but for a constant, on every sample, whatever the loss. So the thresholds can be located with

.. math::

    \min_W\; \sum_\mu \min_c \tfrac12\Big|z^\mu(S) - \frac{\ln Y^\mu}\beta - c\Big|_F^2 + \lambda|W|^2, \qquad
    S = \frac{WW^\top}{\sqrt{pd}},

with the rows of ln Y shifted so that it is symmetric. For widths p >= d this is a convex problem in S. No softmax
flattens it: what is left at the minimum shows the border at once, while the loss of attention rises from 0 very gently.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from attn_lib.fixed_point import ConvergenceError
from attn_lib.simulation._checks import check_seeds, require, single_head_size
from attn_lib.simulation._hardware import SMALL, batches, check_memory, chosen_device, single_head_bytes
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sensing import TokenMeasurement, pairs
from attn_lib.simulation.single_head_risk import FactorisedRisk
from attn_lib.simulation.single_head_sampling import draw_matrix, draw_start, stacked_tokens

__all__ = ["LogitFit", "LogitLoss", "fit_logits"]

_TOLERANCE, _LEAST_LAM, _MAX_ITER = 1e-2, 1e-5, 4000


class LogitLoss:
    r"""Squared distance of fields from the logits of labels, but for a constant, in place of an ``AttentionLoss``.

    With weights w = 1/2 on the diagonal and 1 off it, and the differences r of the pairs,

    .. math:: \ell = \min_c\sum_{a\le b} w_{ab}(r_{ab}-c)^2 .

    Parameters
    ----------
    targets : tensor (set, n, T, T)
        Attention matrices Y of symmetric fields.
    beta : float
        Inverse temperature of the student.

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0.5, -2.0]])
    >>> Y = torch.softmax(torch.tensor([[[1.0, 0.5], [0.5, -2.0]]]), dim=-1)
    >>> round(LogitLoss(Y, 1.0).value_and_gradient(z + 3)[0].item(), 6)
    0.0
    """

    def __init__(self, targets, beta):
        self.a, self.b = pairs(targets.shape[-1], targets.device)
        log = targets.log()
        log = log + (log[..., :1, :] - log[..., :, :1].mT).mT  # rows shifted until the first column is the first row
        self.logits = log[..., self.a, self.b] / beta
        weight = torch.where(self.a == self.b, 0.5, 1.0)
        self.weight = weight.to(targets)

    def value_and_gradient(self, z):
        """Sum of the loss over samples, (set,), and its gradient in z, (set, n, pair)."""
        r = z - self.logits
        r = r - (self.weight * r).sum(-1, keepdim=True) / self.weight.sum()
        return (self.weight * r**2).sum((-2, -1)), 2 * self.weight * r


class LogitFit(NamedTuple):
    """Minima found by :func:`fit_logits`: arrays with one entry per seed.

    ``residual`` is the square root of the first term of the risk, divided by d; ``matrix_error`` is tr (S - S0)^2, with
    tr = Tr/d; ``W`` (seed, d, p) can start the next fit.
    """

    residual: np.ndarray
    matrix_error: np.ndarray
    W: np.ndarray


def fit_logits(problem, *, d, seeds, start=None, device=None):
    """Fit the logits of the labels of drawn data sets, one per seed.

    A seed has the target, the samples and the random start that it has in
    :func:`~attn_lib.simulation.single_head.train_single_head`. A small lam is reached fastest by lowering it step by
    step.

    Parameters
    ----------
    problem : SingleHead
        Its width kappa should be 1 at least, if the minimum is to be that of a convex problem.
    d : int
        >= 2.
    seeds : iterable of int
        Distinct, >= 0.
    start : array (seed, d, p), optional
        W of another fit; by default standard Gaussian.
    device : str, optional
        "cpu", "cuda", "cuda:1"...; by default "cuda" where there is one. Always in float64: logits of saturated labels
        need it.

    Returns
    -------
    LogitFit

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.
    ConvergenceError
        Gradient still too large after 4000 iterations, or at a point from which none leads down; ``partial`` is the
        LogitFit there.

    Accuracy
    --------
    The gradient is below 1e-2 of that of the penalty at a standard Gaussian W, with lam = 1e-5 where it is smaller.

    Source
    ------
    arXiv 2509.24914 for the layer; this instrument belongs to the chapter on interpolation.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> target = MarchenkoPastur(kappa0=0.5)
    >>> def residual(alpha):
    ...     problem = SingleHead(alpha=alpha, lam=1e-4, Delta=0.5, kappa=1.0, target=target)
    ...     return fit_logits(problem, d=16, seeds=range(2)).residual
    >>> bool((residual(0.1) < 0.01).all()), bool((residual(0.4) > 0.1).all())
    (True, True)
    """
    d, n, p = single_head_size(problem, d)
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    check_seeds(seeds)
    device, needed = chosen_device(device), single_head_bytes(problem, d=d, n=n, p=p, n_test=0)
    check_memory(needed, problem, n=n, n_test=0, device=device)
    if start is None:
        start = np.stack([draw_start(d, p, seed, 0) for seed in seeds])
    start = np.asarray(start, dtype=float)
    require(np.isfinite(start).all(), "start", start, "finite numbers")
    require(start.shape == (len(seeds), d, p), "start", start.shape, f"of shape {(len(seeds), d, p)}")
    starts = dict(zip(seeds, start, strict=True))
    groups = batches(seeds, device, needed, SMALL["single head"] // (problem.n_tokens * n * d))
    found = [_fit(problem, d, n, p, batch, starts, device) for batch in groups]
    *columns, norms, n_iter, converged = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
    fit = LogitFit(*columns)
    if not converged.all():
        raise ConvergenceError(f"gradient norms {norms.tolist()} after {n_iter.tolist()} iterations", partial=fit)
    return fit


def _fit(problem, d, n, p, seeds, starts, device):
    """Residual, error of the matrix and W, and the norms of the gradient, iterations and convergence: a row a seed."""
    S0 = np.stack([draw_matrix(problem, d, seed) for seed in seeds])
    x, Y = stacked_tokens(problem, S0, n=n, seeds=seeds, device=device)
    require(
        bool((Y > 0).all()), "problem", problem, "one whose labels are > 0 in double precision: less Delta or beta0"
    )
    risk = FactorisedRisk(TokenMeasurement(x), LogitLoss(Y, problem.beta), problem.lam, d=d, p=p)
    tolerance = _TOLERANCE * 2 * max(problem.lam, _LEAST_LAM) * (p * d) ** 0.5
    W = torch.as_tensor(np.stack([starts[seed] for seed in seeds]), device=device).flatten(1)
    minimum = minimise(risk, W, tolerance=tolerance, max_iter=_MAX_ITER)
    residual = risk.loss(risk.fields(minimum.Q))[0].sqrt() / d
    error = ((risk.matrix(minimum.Q) - torch.as_tensor(S0, device=device)) ** 2).sum((1, 2)) / d
    W = minimum.Q.unflatten(1, (d, p))
    return residual, error, W, minimum.gradient_norm, minimum.n_iter, minimum.converged
