r"""Attention on Gaussian measurements: the same risk, with sensing matrices of independent Gaussian entries.

.. math::

    z_{ab}(S) = \mathrm{Tr}[A_{ab}S], \qquad A_{ab}\ \text{symmetric}, \quad
    E(A_{ab})_{ij}^2 = \frac{1+\delta_{ab}}{d}\,\frac{1+\delta_{ij}}2 \quad\Rightarrow\quad
    E\,z_{ab}(S)z_{ab}(S') = (1+\delta_{ab})\,\mathrm{tr}\,SS',

with tr = Tr/d. These are the covariances that tokens give to the pre-activations of a layer, but here the fields are
exactly Gaussian and those of different pairs independent, not only uncorrelated. Universality says that training
cannot tell the two apart in the limit of large d. A measurement stores all d(d+1)/2 entries of its matrix: a check at
moderate d, not a way to train.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from attn_lib.simulation._checks import (
    check_integers,
    check_positive,
    check_seeds,
    require,
    single_head_size,
)
from attn_lib.simulation._hardware import BLOCK, DTYPES, SMALL, batches, chosen_device, free_memory, stacked
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sampling import generator
from attn_lib.simulation.sensing import pairs
from attn_lib.simulation.single_head_risk import AttentionLoss, FactorisedRisk
from attn_lib.simulation.single_head_sampling import draw_matrix, draw_start, labels

__all__ = ["GaussianMeasurement", "TrainedOnGaussians", "train_on_gaussians"]


class GaussianMeasurement:
    """Measurements by Gaussian matrices, in the form of :class:`~attn_lib.simulation.sensing.Measurement`.

    Parameters
    ----------
    entries : tensor (set, n, pair, d(d+1)/2)
        Independent standard Gaussian: the upper triangles of the A_ab, those off the diagonal times sqrt(2), in units
        of sqrt((1 + delta_ab)/d).
    d : int

    Examples
    --------
    >>> measurement = GaussianMeasurement(torch.ones(1, 1, 1, 3), d=2)
    >>> measurement.measure(torch.eye(2)[None])
    tensor([[[2.]]])
    """

    def __init__(self, entries, d):
        self.entries = entries
        self.d = d
        self.i, self.j = torch.triu_indices(d, d, device=entries.device)
        n_pairs = entries.shape[2]
        a, b = pairs(round((2 * n_pairs + 0.25) ** 0.5 - 0.5))
        self.scale = ((1 + (a == b).double()) / d).sqrt().to(entries)
        self.weight = (2 - (self.i == self.j).double()).sqrt().to(entries)

    def measure(self, S):
        """z, (set, d, d) to (set, n, pair)."""
        flat = S[:, self.i, self.j] * self.weight
        return torch.einsum("snpk,sk->snp", self.entries, flat) * self.scale

    def adjoint(self, g):
        """Sum of g_ab A_ab, (set, n, pair) to (set, d, d)."""
        flat = torch.einsum("snp,snpk->sk", g * self.scale, self.entries) / self.weight
        total = flat.new_zeros(len(flat), self.d, self.d)
        total[:, self.i, self.j] = total[:, self.j, self.i] = flat
        return total


@dataclass(frozen=True, kw_only=True)
class TrainedOnGaussians:
    """Minima reached by :func:`train_on_gaussians`: arrays with one entry per seed. tr is Tr/d.

    Parameters
    ----------
    train_loss, penalty : array (seed,)
        The two terms of the minimum divided by d^2.
    test_error, test_error_se : array (seed,)
        Mean of the loss over fresh Gaussian samples with noisy labels, and its standard error at fixed S.
    m, q : array (seed,)
        Overlaps tr S S0 and tr S^2.
    eigenvalues : array (seed, d)
        Of S, ascending.
    converged : array (seed,)
    S, S0 : array (seed, d, d)
        The learned matrix and the target.
    """

    train_loss: np.ndarray
    penalty: np.ndarray
    test_error: np.ndarray
    test_error_se: np.ndarray
    m: np.ndarray
    q: np.ndarray
    eigenvalues: np.ndarray
    converged: np.ndarray
    S: np.ndarray
    S0: np.ndarray


def train_on_gaussians(
    problem, *, d, seeds, n_test=10_000, tolerance=1e-4, max_iter=2000, device=None, dtype="float64"
):
    """Train as :func:`~attn_lib.simulation.single_head.train_single_head` does, on Gaussian measurements.

    A seed has the same target S0 and the same start W there; only what the samples measure differs.

    Parameters
    ----------
    problem : SingleHead
    d : int
        >= 2.
    seeds : iterable of int
        Distinct, >= 0.
    n_test : int
        Fresh samples per seed, >= 2.
    tolerance : float
        On the norm of the gradient divided by 2 lambda sqrt(p d), > 0.
    max_iter : int
        >= 1.
    device, dtype : str
        As in :func:`~attn_lib.simulation.single_head.train_single_head`.

    Returns
    -------
    TrainedOnGaussians

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed; also when the matrices would not fit in the free memory.

    Source
    ------
    The universality argument of arXiv 2509.24914; the experiment is ours.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> problem = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> e = train_on_gaussians(problem, d=12, seeds=[0])
    >>> e.eigenvalues.shape, bool(e.converged.all())
    ((1, 12), True)
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    d, n, p = single_head_size(problem, d)
    device = chosen_device(device, dtype)
    check_integers(2, n_test=n_test)
    check_integers(1, max_iter=max_iter)
    check_positive(tolerance=tolerance)
    check_seeds(seeds)
    numbers = n * problem.n_tokens * (problem.n_tokens + 1) // 2 * d * (d + 1) // 2
    needed = 2 * DTYPES[dtype].itemsize * numbers + 8 * 4 * BLOCK
    free = free_memory(torch.device(device))
    allowed = f"smaller: the matrices need {needed:.3g} bytes, and {free:.3g} are free on {device}"
    require(needed < free, "d", d, allowed)
    kind, rows = {"device": device, "dtype": DTYPES[dtype]}, []
    for batch in batches(seeds, device, needed, SMALL["single head"] // numbers):
        rows += _train(problem, d, n, p, batch, n_test, tolerance, max_iter, kind)
    return TrainedOnGaussians(**{name: np.array([row[name] for row in rows]) for name in rows[0]})


def _train(problem, d, n, p, seeds, n_test, tolerance, max_iter, kind):
    """Minimise for all these seeds at once; one dict of results per seed."""
    targets = [draw_matrix(problem, d, seed) for seed in seeds]
    data = [_draw(problem, S0, n, seed, kind) for S0, seed in zip(targets, seeds, strict=True)]
    entries, Y = stacked(data)
    risk = FactorisedRisk(GaussianMeasurement(entries, d), AttentionLoss(Y, problem.beta), problem.lam, d=d, p=p)
    unit = 2 * problem.lam * (p * d) ** 0.5
    W = torch.as_tensor(np.stack([draw_start(d, p, seed, 0).ravel() for seed in seeds]), **kind)
    minimum = minimise(risk, W, tolerance=tolerance * unit, max_iter=max_iter)
    data_terms, _ = risk.loss(risk.fields(minimum.Q))
    learned = risk.matrix(minimum.Q).cpu().numpy().astype(float)
    return [
        {
            "train_loss": data_terms[i].item() / d**2,
            "penalty": problem.lam * (minimum.Q[i] ** 2).sum().item() / d**2,
            "converged": minimum.converged[i].item(),
            **_measured(problem, n_test, seed, learned[i], targets[i]),
        }
        for i, seed in enumerate(seeds)
    ]


def _draw(problem, S0, n, seed, kind):
    """Entries of the sensing matrices and labels of one data set: drawn and labelled in float64, some at a time."""
    d, n_pairs, rng = len(S0), problem.n_tokens * (problem.n_tokens + 1) // 2, generator(seed, "train")
    shape, S0 = (n_pairs, d * (d + 1) // 2), torch.as_tensor(S0, device=kind["device"])[None]
    entries, fields = torch.empty(n, *shape, **kind), []
    for block in entries.split(max(1, BLOCK // (shape[0] * shape[1]))):
        numbers = torch.as_tensor(rng.standard_normal(block.shape), device=block.device)
        block.copy_(numbers)
        fields.append(GaussianMeasurement(numbers[None], d).measure(S0)[0])
    noise = torch.as_tensor(rng.standard_normal((n, n_pairs)), device=entries.device)
    return entries, labels(problem, torch.cat(fields), noise).to(entries.dtype)


def _measured(problem, n_test, seed, S, S0):
    """Overlaps, spectrum, and the test error, with its standard error, on the CPU: nothing in it grows with d."""
    d, n_pairs = len(S), problem.n_tokens * (problem.n_tokens + 1) // 2
    m, q, Q0 = ((A * B).sum() / d for A, B in ((S, S0), (S, S), (S0, S0)))

    # a fresh measurement enters through its fields only, and they are Gaussian: no matrices need to be drawn
    fresh = generator(seed, "test")
    a, b = pairs(problem.n_tokens)
    common, own = torch.as_tensor(fresh.standard_normal((2, 1, n_test, n_pairs))) * (1 + (a == b).double()).sqrt()
    z = q**0.5 * common
    z0 = m / q**0.5 * common + max(Q0 - m**2 / q, 0.0) ** 0.5 * own
    Y = labels(problem, z0, torch.as_tensor(fresh.standard_normal(z0.shape)))
    errors = AttentionLoss(Y, problem.beta).errors(z)
    return {
        "test_error": errors.mean().item(),
        "test_error_se": errors.std().item() / n_test**0.5,
        "m": m,
        "q": q,
        "eigenvalues": np.linalg.eigvalsh(S),
        "S": S,
        "S0": S0,
    }
