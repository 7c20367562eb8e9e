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

from attn_lib.simulation._checks import check_seeds, free_memory, is_integer, is_real, require
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
        self.i, self.j = torch.triu_indices(d, d)
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
        d = self.i[-1] + 1
        total = flat.new_zeros(len(flat), d, d)
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


def train_on_gaussians(problem, *, d, seeds, n_test=10_000, tolerance=1e-4, max_iter=2000):
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
    require(is_integer(d) and d >= 2, "d", d, "an integer >= 2")
    d = int(d)
    n, p = round(problem.alpha * d**2), round(problem.kappa * d)
    require(n >= 1, "alpha", problem.alpha, f"large enough for round(alpha d^2) >= 1 at d = {d}")
    require(p >= 1, "kappa", problem.kappa, f"large enough for round(kappa d) >= 1 at d = {d}")
    require(is_integer(n_test) and n_test >= 2, "n_test", n_test, "an integer >= 2")
    require(is_integer(max_iter) and max_iter >= 1, "max_iter", max_iter, "an integer >= 1")
    require(is_real(tolerance) and tolerance > 0, "tolerance", tolerance, "a finite number > 0")
    check_seeds(seeds)
    needed = 2 * 8 * n * problem.n_tokens * (problem.n_tokens + 1) // 2 * d * (d + 1) // 2
    free = free_memory(torch.device("cpu"))
    require(needed < free, "d", d, f"smaller: the matrices need {needed:.3g} bytes, and {free:.3g} are free")
    rows = [_train(problem, d, n, p, seed, n_test, tolerance, max_iter) for seed in seeds]
    return TrainedOnGaussians(**{name: np.array([row[name] for row in rows]) for name in rows[0]})


def _train(problem, d, n, p, seed, n_test, tolerance, max_iter):
    """Minimise for one seed; a dict of results."""
    S0, rng = draw_matrix(problem, d, seed), generator(seed, "train")
    n_pairs = problem.n_tokens * (problem.n_tokens + 1) // 2
    measurement = GaussianMeasurement(torch.as_tensor(rng.standard_normal((1, n, n_pairs, d * (d + 1) // 2))), d)
    fields = measurement.measure(torch.as_tensor(S0)[None])
    loss = AttentionLoss(labels(problem, fields, torch.as_tensor(rng.standard_normal(fields.shape))), problem.beta)
    risk = FactorisedRisk(measurement, loss, problem.lam, d=d, p=p)
    unit = 2 * problem.lam * (p * d) ** 0.5
    W = torch.as_tensor(draw_start(d, p, seed, 0)).flatten()[None]
    minimum = minimise(risk, W, tolerance=tolerance * unit, max_iter=max_iter)
    data_term, _ = risk.loss(risk.fields(minimum.Q))
    S = risk.matrix(minimum.Q)[0].numpy()
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
        "train_loss": data_term.item() / d**2,
        "penalty": problem.lam * (minimum.Q**2).sum().item() / d**2,
        "test_error": errors.mean().item(),
        "test_error_se": errors.std().item() / n_test**0.5,
        "m": m,
        "q": q,
        "eigenvalues": np.linalg.eigvalsh(S),
        "converged": minimum.converged.item(),
        "S": S,
        "S0": S0,
    }
