r"""Empirical risk minimisation at finite d, many seeds, on CPU or GPU: Part I.

.. math:: \min_Q\; \sum_{\mu=1}^n \frac{|y^\mu - f_Q(x^\mu)|^2}{2d} + \frac\lambda2 |Q|^2, \qquad n = \alpha d

The risk is exact at any d (:class:`~attn_lib.simulation.risk.AttentionRisk`) and its gradient is brought to a
small norm (:func:`~attn_lib.simulation.lbfgs.minimise`). It is not convex: the start decides which minimum is
reached. For Part II, :func:`~attn_lib.simulation.single_head.train_single_head` has the same form.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation._checks import attention_size, check_training, lowest
from attn_lib.simulation._hardware import DTYPES, SMALL, attention_bytes, batches, chosen_device
from attn_lib.simulation.attention import gram_matrices, squared_error, student_attention
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample, draw_target, generator
from attn_lib.simulation.single_head import train_single_head

__all__ = ["START_SCALES", "Settings", "TrainedAttention", "train_positional_semantic", "train_single_head"]

# Several minima lie near each branch. A start close to 0 follows the branch best; larger scales find minima
# that it misses. (Most runs from 1_d itself are trapped in a minimum that is higher by several percent.)
START_SCALES = {"semantic": (0.05, 1.0), "positional": (0.05, 0.25, 0.5), "random": (1.0,)}

SAME_LOSS = 1e-6  # relative; at the default tolerance, runs that reach one minimum agree far better


class Settings(NamedTuple):
    """How the training was run: arguments of :func:`train_positional_semantic`, and n = round(alpha d)."""

    d: int
    n: int
    n_test: int
    start: str
    scales: tuple
    tolerance: float
    max_iter: int
    device: str
    dtype: str


@dataclass(frozen=True, kw_only=True)
class TrainedAttention:
    r"""Minima reached by :func:`train_positional_semantic`: arrays with one entry per seed.

    Q and -Q are the same layer, so overlaps are given as absolute values: one that vanishes in theory reads
    as a positive number of order 1/sqrt(d). Q itself has the sign that makes its larger overlap (m against
    theta/sigma**2) positive.

    Parameters
    ----------
    problem : PositionalSemantic
    settings : Settings
    seeds : array (seed,)
    train_loss : array (seed,)
        Minimum of the risk, divided by d.
    test_error, test_error_se : array (seed,)
        Mean of :math:`|y - f|^2/(2d)` over fresh samples, and its standard error at fixed Q.
    q, m, theta : array (seed,)
        Overlaps :math:`q = \sigma^2|Q|^2/d`, :math:`m = |1_d\cdot Q|/d` and
        :math:`\theta = \sigma^2|Q\cdot Q^\star|/d`.
    gradient_norm, n_iter, converged : array (seed,)
        Norm of the gradient divided by lam sqrt(d); iterations; whether the tolerance was reached.
    scale : array (seed,)
        Scale of the start of the run that was kept, the one of lowest loss.
    start_losses : array (seed, scale)
        Final losses, divided by d, of all runs.
    Q, Q_star : array (seed, d)
        What was learned, and the target.
    """

    problem: PositionalSemantic
    settings: Settings
    seeds: np.ndarray
    train_loss: np.ndarray
    test_error: np.ndarray
    test_error_se: np.ndarray
    q: np.ndarray
    m: np.ndarray
    theta: np.ndarray
    gradient_norm: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    scale: np.ndarray
    start_losses: np.ndarray
    Q: np.ndarray
    Q_star: np.ndarray

    @property
    def n_trapped(self):
        """Per seed, how many of the runs ended in a higher minimum than the one kept."""
        return (self.start_losses > (1 + SAME_LOSS) * self.train_loss[:, None]).sum(axis=1)


def train_positional_semantic(
    problem,
    *,
    d,
    seeds,
    start="semantic",
    scales=None,
    n_test=2000,
    tolerance=1e-5,
    max_iter=1000,
    device=None,
    dtype="float64",
    progress=False,
):
    """Train the attention layer of Part I on drawn data sets, one per seed, from a named start.

    A seed gives the same Q*, training set and fresh samples whatever the start, the device and the dtype:
    losses of two starts can be compared seed by seed. A start is named after the branch that it follows where
    that branch is stable; elsewhere it may end on the other one, as m and theta will show.

    Parameters
    ----------
    problem : PositionalSemantic
    d : int
        Dimension of the tokens, >= 2.
    seeds : iterable of int
        Distinct, >= 0.
    start : str
        Direction of the start: "semantic" (Q*), "positional" (1_d) or "random" (N(0, I_d)).
    scales : tuple of float, optional
        The start is scale times this direction; there is one run per scale, and the one of lowest loss is
        kept. By default ``START_SCALES[start]``.
    n_test : int
        Fresh samples per seed, >= 2.
    tolerance : float
        On the norm of the gradient divided by lam sqrt(d), > 0. Where the risk is convex, this bounds the
        distance to the minimum, divided by sqrt(d).
    max_iter : int
        A run that needs more iterations is returned with converged = False.
    device : str, optional
        "cpu", "cuda", "cuda:1"...; by default "cuda" where there is one, which trains many seeds at once.
    dtype : str
        "float64" or "float32", for the minimisation; data and test error are float64 always.
    progress : bool
        Show a progress bar over seeds.

    Returns
    -------
    TrainedAttention

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.

    Accuracy
    --------
    At the default tolerance the large overlaps are within about 1e-5 (relative) of those at the minimum, and
    losses within 1e-9.

    Source
    ------
    arXiv 2402.03902, whose full-batch gradient descent is replaced by L-BFGS on the same risk.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> problem = PositionalSemantic(alpha=1.5, omega=0.3)
    >>> e = train_positional_semantic(problem, d=50, seeds=range(2), device="cpu")
    >>> e.theta.shape, bool(e.converged.all())
    ((2,), True)
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    if scales is None and isinstance(start, str):
        scales = START_SCALES.get(start)
    n, device = attention_size(problem, d), chosen_device(device, dtype)
    settings = Settings(d, n, n_test, start, scales, tolerance, max_iter, device, dtype)
    check_training(settings, seeds, tuple(START_SCALES))
    needed, rows = attention_bytes(d, n, len(scales), dtype), []
    with tqdm(total=len(seeds), desc=f"{start} start", disable=not progress) as bar:
        for batch in batches(seeds, device, needed, SMALL["attention"] // (2 * n * d)):
            rows += _train(problem, settings, batch)
            bar.update(len(batch))
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return TrainedAttention(problem=problem, settings=settings, seeds=np.array(seeds), **columns)


def _train(problem, settings, seeds):
    """Minimise from every scale for all these seeds at once; one dict of results per seed."""
    d, device, dtype = settings.d, torch.device(settings.device), DTYPES[settings.dtype]
    targets = [draw_target(d, seed) for seed in seeds]
    pairs = list(zip(targets, seeds, strict=True))
    samples = (draw_sample(problem, Q_star, n=settings.n, seed=seed) for Q_star, seed in pairs)
    risk = AttentionRisk(samples, problem.lam, device=device, dtype=dtype)
    directions = np.array([_direction(settings.start, Q_star, seed) for Q_star, seed in pairs])
    Q0 = np.array(settings.scales)[:, None] * directions[:, None, :]
    Q0 = torch.as_tensor(Q0, device=device, dtype=dtype)
    unit = problem.lam * d**0.5
    minimum = minimise(risk, Q0, tolerance=settings.tolerance * unit, max_iter=settings.max_iter)
    rows = []
    for (Q_star, seed), *runs in zip(pairs, *(v.cpu().numpy() for v in minimum), strict=True):
        losses = runs[1] / d
        best = lowest(losses, settings)
        Q, _, gradient_norm, n_iter, converged = (run[best] for run in runs)
        measured = _measure(problem, settings, seed, Q.astype(float), Q_star)
        rows.append({
            "train_loss": losses[best],
            "gradient_norm": gradient_norm / unit,
            "n_iter": n_iter,
            "converged": converged,
            "scale": settings.scales[best],
            "start_losses": losses,
            **measured,
        })  # fmt: skip
    return rows


def _direction(start, Q_star, seed):
    if start == "semantic":
        return Q_star
    if start == "positional":
        return np.ones_like(Q_star)
    return generator(seed, "start").standard_normal(len(Q_star))


def _measure(problem, settings, seed, Q, Q_star):
    """Overlaps, and the test error on fresh samples with its standard error."""
    m, theta = Q.mean(), problem.rho * (Q @ Q_star) / settings.d
    larger = max(m, theta / problem.rho, key=abs)
    fresh = draw_sample(problem, Q_star, n=settings.n_test, seed=seed, stream="test")
    error = squared_error(fresh.T, student_attention(fresh.x, Q), gram_matrices(fresh.x)) / 2
    return {
        "test_error": error.mean(),
        "test_error_se": error.std(ddof=1) / len(error) ** 0.5,
        "q": problem.rho * (Q @ Q) / settings.d,
        "m": abs(m),
        "theta": abs(theta),
        "Q": Q if larger >= 0 else -Q,
        "Q_star": Q_star,
    }
