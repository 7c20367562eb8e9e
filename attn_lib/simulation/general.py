r"""Empirical risk minimisation of the general attention layer at finite d: any number of tokens and ranks.

.. math:: \min_{Q\in R^{d\times r}}\; \sum_{\mu=1}^n \frac{|y^\mu - f_Q(x^\mu)|^2}{2d} + \frac\lambda2 |Q|_F^2,
    \qquad n = \alpha d

For two tokens and rank one these are the data, the risk and the minima of :mod:`attn_lib.simulation.erm`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from tqdm import tqdm

from attn_lib.problems import GeneralAttention
from attn_lib.simulation import erm
from attn_lib.simulation._checks import attention_size, check_training, lowest, require
from attn_lib.simulation._hardware import DTYPES, SMALL, attention_bytes, batches, chosen_device
from attn_lib.simulation.attention import squared_error
from attn_lib.simulation.general_risk import (
    GeneralRisk,
    PositionalEncoding,
    draw_tokens,
    general_attention,
    general_gram,
    token_deviations,
)
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sampling import generator

__all__ = ["START_SCALES", "TrainedGeneral", "train_general"]

START_SCALES = {**erm.START_SCALES, "mixed": (0.05, 0.25, 1.0)}
LEFT_OVER = 0.1  # size of the noise in columns for which the start has no direction: a column of zeros would stay zero


@dataclass(frozen=True, kw_only=True)
class TrainedGeneral:
    r"""Minima reached by :func:`train_general`: arrays with one entry per seed.

    Q and Q R are the same layer for any orthogonal r x r matrix R. Q is given in its principal axes: its columns are
    orthogonal, the longest first, and the largest of the overlaps m_l and theta_l / (Tr Sigma_l / d) of a column is
    positive. Where two columns are equally long these axes are arbitrary; then compare what R leaves alone, such as
    Tr q_l, m_l.m_k and theta_l^T theta_k.

    Parameters
    ----------
    problem : GeneralAttention
    settings : Settings
    seeds : array (seed,)
    train_loss : array (seed,)
        Minimum of the risk, divided by d.
    test_error, test_error_se : array (seed,)
        Mean of :math:`|y - f|^2/(2d)` over fresh samples, and its standard error at fixed Q.
    q : array (seed, L, r, r)
        :math:`q_\ell = Q^\top\Sigma_\ell Q/d`.
    m : array (seed, L, r)
        :math:`m_\ell = Q^\top p_\ell/\sqrt d`.
    theta : array (seed, L, r, t)
        :math:`\theta_\ell = Q^\top\Sigma_\ell Q^\star/d`.
    gradient_norm, n_iter, converged : array (seed,)
        Norm of the gradient divided by lam sqrt(d); iterations; whether the tolerance was reached.
    scale : array (seed,)
        Scale of the start of the run that was kept, the one of lowest loss.
    start_losses : array (seed, scale)
        Final losses, divided by d, of all runs.
    Q, Q_star : array (seed, d, r), array (seed, d, t)
        What was learned, and the target.
    """

    problem: GeneralAttention
    settings: erm.Settings
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


def train_general(
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
    """Train the general attention layer on drawn data sets, one per seed, from a named start.

    Parameters
    ----------
    problem : GeneralAttention
    d : int
        Dimension of the tokens, >= 2, large enough for every eigenvalue group to hold the positions.
    seeds : iterable of int
        Distinct, >= 0. A seed gives the same data whatever the start.
    start : str
        Columns of the start: those of Q* ("semantic"), the axes of the positions, each of length sqrt(d)
        ("positional"), both in turn, Q* first ("mixed", needs rank >= 2), or N(0, 1) entries ("random"). Columns left
        over have entries N(0, 0.01).
    scales : tuple of float, optional
        The start is multiplied by each of these in turn and the run of lowest loss is kept. By default
        ``START_SCALES[start]``.
    n_test, tolerance, max_iter, device, dtype, progress
        As in :func:`~attn_lib.simulation.erm.train_positional_semantic`.

    Returns
    -------
    TrainedGeneral

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.

    Accuracy
    --------
    At the default tolerance the large overlaps are within about 1e-5 (relative) of those at the minimum.

    Source
    ------
    arXiv 2402.03902, the general layer before its specialisation; gradient descent is replaced by L-BFGS.

    Examples
    --------
    >>> from attn_lib.problems import GeneralAttention
    >>> A = [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]]
    >>> e = train_general(GeneralAttention(alpha=2, omega=0.3, A=A, rank=2), d=40, seeds=range(2), device="cpu")
    >>> e.q.shape, e.m.shape, e.theta.shape, bool(e.converged.all())
    ((2, 3, 2, 2), (2, 3, 2), (2, 3, 2, 1), True)
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    if scales is None and isinstance(start, str):
        scales = START_SCALES.get(start)
    n, device = attention_size(problem, d), chosen_device(device, dtype)
    settings = erm.Settings(d, n, n_test, start, scales, tolerance, max_iter, device, dtype)
    check_training(settings, seeds, tuple(START_SCALES))
    require(start != "mixed" or problem.rank >= 2, "start", start, f"another one at rank = {problem.rank}")
    encoding = PositionalEncoding(problem, d)
    informed = start in ("positional", "mixed")
    require(not informed or encoding.axes.size, "start", start, "another one where all positions are zero")
    needed = attention_bytes(d, n, len(scales), dtype, n_tokens=problem.n_tokens, rank=problem.rank)
    rows = []
    with tqdm(total=len(seeds), desc=f"{start} start", disable=not progress) as bar:
        for batch in batches(seeds, device, needed, SMALL["attention"] // (problem.n_tokens * n * d)):
            rows += _train(problem, settings, encoding, batch)
            bar.update(len(batch))
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return TrainedGeneral(problem=problem, settings=settings, seeds=np.array(seeds), **columns)


def _train(problem, settings, encoding, seeds):
    """Minimise from every scale for all these seeds at once and keep the lowest; one dict of results per seed."""
    d, r, kind = settings.d, problem.rank, {"device": settings.device, "dtype": DTYPES[settings.dtype]}
    targets = [generator(seed, "target").standard_normal((d, problem.teacher_rank)) for seed in seeds]
    pairs = list(zip(targets, seeds, strict=True))
    samples = (draw_tokens(problem, Q_star, n=settings.n, seed=seed) for Q_star, seed in pairs)
    risk = GeneralRisk(samples, encoding.vectors, rank=r, lam=problem.lam, **kind)
    axes = d**0.5 * encoding.axes
    Q0 = [_start(settings.start, q, axes, generator(k, "start").standard_normal((d, r))).ravel() for q, k in pairs]
    Q0 = torch.as_tensor(np.array(settings.scales)[:, None] * np.array(Q0)[:, None], **kind)
    unit = problem.lam * d**0.5
    minimum = minimise(risk, Q0, tolerance=settings.tolerance * unit, max_iter=settings.max_iter)
    rows = []
    for (Q_star, seed), *runs in zip(pairs, *(v.cpu().numpy() for v in minimum), strict=True):
        best = lowest(runs[1], settings)
        Q, value, gradient_norm, n_iter, converged = (run[best] for run in runs)
        rows.append({
            "train_loss": value / d,
            "gradient_norm": gradient_norm / unit,
            "n_iter": n_iter,
            "converged": converged,
            "scale": settings.scales[best],
            "start_losses": runs[1] / d,
            **_measure(problem, settings, encoding, seed, Q.reshape(d, r).astype(float), Q_star),
        })  # fmt: skip
    return rows


def _start(start, Q_star, axes, noise):
    """Columns in the order asked for; noise fills what is left of the r columns."""
    r = noise.shape[1]
    if start == "random":
        return noise
    if start == "mixed":
        pairs = zip(Q_star.T, axes.T, strict=False)
        columns = [column for pair in pairs for column in pair][:r]
    else:
        columns = list((Q_star if start == "semantic" else axes).T[:r])
    Q = LEFT_OVER * noise
    Q[:, : len(columns)] = np.transpose(columns)
    return Q


def _measure(problem, settings, encoding, seed, Q, Q_star):
    """Overlaps in the principal axes of Q, and the test error on fresh samples with its standard error."""
    d, p = settings.d, encoding.vectors
    Q = Q @ np.linalg.eigh(Q.T @ Q)[1][:, ::-1]
    covariances = token_deviations(problem, d) ** 2
    tau = np.array(problem.token_variances)[:, None, None]
    m = p @ Q / d**0.5
    theta = np.einsum("ir,li,it->lrt", Q, covariances, Q_star) / d
    overlaps = np.concatenate([m, *(theta / tau).swapaxes(1, 2)])
    signs = np.where(np.take_along_axis(overlaps, abs(overlaps).argmax(0)[None], 0)[0] < 0, -1, 1)
    Q *= signs
    fresh = draw_tokens(problem, Q_star, n=settings.n_test, seed=seed, stream="test")
    S = general_attention(fresh.x + p, Q)
    error = squared_error(fresh.T, S, general_gram(fresh.x, p)) / 2
    return {
        "test_error": error.mean(),
        "test_error_se": error.std(ddof=1) / len(error) ** 0.5,
        "q": np.einsum("ir,li,is->lrs", Q, covariances, Q) / d,
        "m": m * signs,
        "theta": theta * signs[:, None],
        "Q": Q,
        "Q_star": Q_star,
    }
