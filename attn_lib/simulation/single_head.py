r"""Empirical risk minimisation of Part II at finite d, many seeds, on CPU or GPU.

.. math::

    \min_W\; \sum_{\mu=1}^n \ell\big(Y^\mu, \mathrm{softmax}(\beta z^\mu(S))\big) + \lambda|W|^2, \qquad
    S = \frac{WW^\top}{\sqrt{pd}}, \qquad n = \alpha d^2

The risk is exact at any d (:class:`~attn_lib.simulation.single_head_risk.FactorisedRisk`) and its gradient is brought
to a small norm, by L-BFGS or by Adam, from a random W.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from attn_lib.problems import SingleHead
from attn_lib.simulation import checkpoint as saved
from attn_lib.simulation._checks import check_single_head, require, single_head_size
from attn_lib.simulation._hardware import DTYPES, SMALL, batches, check_memory, chosen_device, single_head_bytes
from attn_lib.simulation.descent import minimise_by_adam
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sensing import TokenMeasurement
from attn_lib.simulation.single_head_risk import FactorisedRisk, attention_loss
from attn_lib.simulation.single_head_sampling import draw_matrix, draw_start, stacked_tokens

__all__ = ["MAX_ITER", "SingleHeadSettings", "TrainedSingleHead", "train_single_head"]

OPTIMISERS = {"lbfgs": minimise, "adam": minimise_by_adam}
MAX_ITER = {"lbfgs": 5000, "adam": 2000}


class SingleHeadSettings(NamedTuple):
    """How the training was run: arguments of :func:`train_single_head`, n = round(alpha d^2) and p = round(kappa d)."""

    d: int
    n: int
    p: int
    task: str
    centring: str
    optimiser: str
    start: int
    scale: float
    learning_rate: float
    n_test: int
    noisy_test: bool
    tolerance: float
    max_iter: int
    rank_threshold: float
    device: str
    dtype: str


@dataclass(frozen=True, kw_only=True)
class TrainedSingleHead:
    r"""Minima reached by :func:`train_single_head`: arrays with one entry per seed. tr is Tr/d.

    Parameters
    ----------
    problem : SingleHead
    settings : SingleHeadSettings
    seeds : array (seed,)
    train_loss, penalty : array (seed,)
        The two terms of the minimum divided by d^2: the data term, and :math:`\lambda|W|^2/d^2`.
    test_error, test_error_se : array (seed,)
        Mean of the loss over fresh samples, and its standard error at fixed W.
    m, q : array (seed,)
        Overlaps tr S S0 and tr S^2.
    rank : array (seed,)
        Fraction of eigenvalues of S above ``settings.rank_threshold``.
    eigenvalues : array (seed, d)
        Of S, ascending.
    gradient_norm, n_iter, converged : array (seed,)
        Norm of the gradient divided by 2 lambda sqrt(p d); iterations; whether the tolerance was reached.
    W : array (seed, d, p)
    S0 : array (seed, d, d)
        The target.
    """

    problem: SingleHead
    settings: SingleHeadSettings
    seeds: np.ndarray
    train_loss: np.ndarray
    penalty: np.ndarray
    test_error: np.ndarray
    test_error_se: np.ndarray
    m: np.ndarray
    q: np.ndarray
    rank: np.ndarray
    eigenvalues: np.ndarray
    gradient_norm: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    W: np.ndarray
    S0: np.ndarray


def train_single_head(
    problem,
    *,
    d,
    seeds,
    task="seq2lab",
    centring="trace",
    optimiser="lbfgs",
    start=0,
    scale=1.0,
    learning_rate=0.2,
    n_test=10_000,
    noisy_test=True,
    tolerance=1e-4,
    max_iter=None,
    rank_threshold=1e-3,
    device=None,
    dtype="float64",
    checkpoint=None,
    progress=False,
):
    r"""Train the attention layer of Part II on drawn data sets, one per seed, from a random start.

    A seed gives the same target, training set, fresh samples and starts whatever the optimiser, the task, the device
    and the dtype: losses can be compared seed by seed.

    Parameters
    ----------
    problem : SingleHead
    d : int
        Dimension of the tokens, >= 2.
    seeds : iterable of int
        Distinct, >= 0.
    task : str
        "seq2lab": the attention matrix is compared with its label, :math:`\sum_{ab}(Y_{ab}-A_{ab})^2`; or "seq2seq":
        the output with its target, :math:`|(Y-A)x|^2/d`.
    centring : str
        How the student is centred. "trace": as the target, by :math:`\delta_{ab}\mathrm{Tr}S`. "empirical": by the
        mean of :math:`x_a^\top S x_b` over the training set, also on fresh samples.
    optimiser : str
        "lbfgs" or "adam" (full batch).
    start : int
        >= 0, numbers the different starts of a seed.
    scale : float
        Standard deviation of the entries of W at the start, > 0.
    learning_rate : float
        Of the first step of Adam, > 0; it falls to 0 over max_iter steps.
    n_test : int
        Fresh samples per seed, >= 2.
    noisy_test : bool
        Whether the labels of the fresh samples carry the noise, as those of the training set do.
    tolerance : float
        On the norm of the gradient divided by 2 lambda sqrt(p d), which is that of the penalty at a standard Gaussian
        W; > 0.
    max_iter : int, optional
        A run that needs more iterations is returned with converged = False. By default ``MAX_ITER[optimiser]``.
    rank_threshold : float
        Eigenvalues of S above it count for the rank, >= 0.
    device : str, optional
        "cpu", "cuda", "cuda:1"...; by default "cuda" where there is one, which trains many seeds at once.
    dtype : str
        "float64" or "float32", for the minimisation; data, test error and eigenvalues are float64 always.
    checkpoint : str or Path, optional
        File that keeps the finished seeds. A call with the same parameters continues it, with these or other seeds:
        an interruption costs no more than the runs in progress.
    progress : bool
        Show a progress bar over seeds, with the iterations of the runs in progress.

    Returns
    -------
    TrainedSingleHead

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed. Also when the data would not fit in the free memory (before
        anything is drawn), and when the checkpoint is one of other parameters.

    Accuracy
    --------
    At the default tolerance the risk is within 1e-9 (relative) of its minimum and eigenvalues within 1e-5; where data
    are few (alpha = 0.05), within 1e-7 and 3e-3. Eigenvalues that vanish at the minimum are then below 1e-5, and the
    others are of order 1 with a spacing of order 1/d: few lie below the rank threshold. In float32 the risk is within
    1e-6, in half the time. Where labels are noisy, alpha is near the interpolation threshold and lam is small, the risk
    has several minima (losses 2% apart at alpha = 0.3, lam = 1e-3, d = 40): compare starts and scales.

    Source
    ------
    arXiv 2509.24914, the tied student. The published simulations centre by the empirical mean, the theory by the
    trace.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur
    >>> problem = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> e = train_single_head(problem, d=20, seeds=range(2), device="cpu")
    >>> e.eigenvalues.shape, bool(e.converged.all()), bool((e.test_error > e.train_loss / problem.alpha).all())
    ((2, 20), True, True)
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    max_iter = MAX_ITER.get(optimiser) if max_iter is None and isinstance(optimiser, str) else max_iter
    device = chosen_device(device, dtype)
    d, n, p = single_head_size(problem, d)
    settings = SingleHeadSettings(
        d, n, p, task, centring, optimiser, start, scale, learning_rate, n_test, noisy_test, tolerance, max_iter,
        rank_threshold, device, dtype,
    )  # fmt: skip
    check_single_head(settings, seeds, tuple(MAX_ITER))
    needed = single_head_bytes(problem, d=d, n=n, p=p, n_test=n_test, dtype=dtype)
    check_memory(needed, problem, n=n, n_test=n_test, device=device)
    parameters = {**asdict(problem), **settings._asdict()}
    rows = {} if checkpoint is None else saved.load(checkpoint, parameters)
    todo = [seed for seed in seeds if seed not in rows]
    with tqdm(total=len(seeds), initial=len(seeds) - len(todo), desc=optimiser, disable=not progress) as bar:
        for batch in batches(todo, device, needed, SMALL["single head"] // (problem.n_tokens * n * d)):
            rows.update(zip(batch, _train(problem, settings, batch, bar), strict=True))
            if checkpoint is not None:
                saved.save(checkpoint, parameters, rows)
            bar.update(len(batch))
    columns = {name: np.array([rows[seed][name] for seed in seeds]) for name in rows[seeds[0]]}
    return TrainedSingleHead(problem=problem, settings=settings, seeds=np.array(seeds), **columns)


def _train(problem, settings, seeds, bar):
    """Minimise for all these seeds at once; one dict of results per seed."""
    d, p, device, dtype = settings.d, settings.p, settings.device, DTYPES[settings.dtype]
    targets = [draw_matrix(problem, d, seed) for seed in seeds]
    x, Y = stacked_tokens(problem, targets, n=settings.n, seeds=seeds, device=device, dtype=dtype)
    measurement, loss = TokenMeasurement(x, centring=settings.centring), attention_loss(problem, settings.task, x, Y)
    risk = FactorisedRisk(measurement, loss, problem.lam, d=d, p=p)
    W = np.array([settings.scale * draw_start(d, p, seed, settings.start) for seed in seeds])
    unit = 2 * problem.lam * (p * d) ** 0.5

    def report(i, norm):
        if i % 10 == 0:
            bar.set_postfix(iteration=i, gradient=f"{norm.max().item() / unit:.1e}")

    options = {"tolerance": settings.tolerance * unit, "max_iter": settings.max_iter, "report": report}
    if settings.optimiser == "adam":
        options["learning_rate"] = settings.learning_rate
    minimum = OPTIMISERS[settings.optimiser](risk, x.new_tensor(W).flatten(1), **options)
    data_term, _ = risk.loss(risk.fields(minimum.Q))
    require(minimum.value.isfinite().all(), "scale", settings.scale, f"small enough for a finite loss in {dtype}")
    offset = [0.0] * len(seeds)
    if settings.centring == "empirical":
        offset = TokenMeasurement(x).measure(risk.matrix(minimum.Q)).double().mean(1)
    W = minimum.Q.unflatten(-1, (d, p)).cpu().numpy().astype(float)
    return [
        {
            "train_loss": data_term[i].item() / d**2,
            "penalty": problem.lam * (W[i] ** 2).sum() / d**2,
            "gradient_norm": minimum.gradient_norm[i].item() / unit,
            "n_iter": minimum.n_iter[i].item(),
            "converged": minimum.converged[i].item(),
            **_measured(problem, settings, seed, W[i], targets[i], offset[i]),
        }
        for i, seed in enumerate(seeds)
    ]


def _measured(problem, settings, seed, W, S0, offset):
    """Spectrum, overlaps, and the test error on fresh samples with its standard error."""
    d, n_test = settings.d, settings.n_test
    S = W @ W.T / (settings.p * d) ** 0.5
    eigenvalues = np.linalg.eigvalsh(S)
    kind = {"noisy": settings.noisy_test, "device": settings.device}
    x, Y = stacked_tokens(problem, [S0], n=n_test, seeds=[seed], stream="test", **kind)
    z = TokenMeasurement(x).measure(torch.as_tensor(S, device=settings.device)[None]) - offset
    errors = attention_loss(problem, settings.task, x, Y).errors(z)
    return {
        "test_error": errors.mean().item(),
        "test_error_se": errors.std().item() / n_test**0.5,
        "m": (S * S0).sum() / d,
        "q": (S * S).sum() / d,
        "rank": (eigenvalues > settings.rank_threshold).mean(),
        "eigenvalues": eigenvalues,
        "W": W,
        "S0": S0,
    }
