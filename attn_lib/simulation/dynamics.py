r"""Training dynamics of Part I at finite d: full-batch gradient descent and Adam on the empirical risk.

.. math::

    Q_{t+1} = Q_t - \eta\,\nabla F(Q_t), \qquad
    F(Q) = \sum_{\mu=1}^n \frac{|y^\mu - f_Q(x^\mu)|^2}{2d} + \frac\lambda2 |Q|^2, \qquad n = \alpha d

The risk is the exact one of :class:`~attn_lib.simulation.risk.AttentionRisk`. Runs that share a data set share
each pass over its tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation._checks import attention_size, check_integers, check_positive, check_seeds, is_real, require
from attn_lib.simulation._hardware import DTYPES, attention_bytes, batches, chosen_device
from attn_lib.simulation.attention import gram_matrices, squared_error, student_attention
from attn_lib.simulation.descent import OPTIMISERS, descend, largest_curvature
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample, draw_target, generator

__all__ = ["Descent", "Start", "train_by_descent"]

CACHED = 250_000  # entries of the tokens that are passed over at once on a CPU: what its cache holds


class Start(NamedTuple):
    r"""Start of a run, :math:`Q_0 = a\,1_d + b\,Q^\star + c\,\xi` with fresh :math:`\xi\sim N(0, I_d)`.

    The initial overlaps are m = a and theta = b sigma**2, up to chance overlaps of order 1/sqrt(d).

    Parameters
    ----------
    positional, semantic, random : float
        The coefficients a, b and c, not all zero: Q = 0 is a stationary point of the risk.
    """

    positional: float = 0.0
    semantic: float = 0.0
    random: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Descent:
    r"""Runs of :func:`train_by_descent`: arrays with one entry per (seed, start).

    Q and -Q are the same layer. Each run is given the sign that makes its larger final overlap (m against
    theta/sigma**2) positive, all along its path.

    Parameters
    ----------
    problem : PositionalSemantic
    seeds : array (seed,)
    starts : tuple of Start
    steps : array (record,)
        Steps after which the path is recorded; the first is 0, the last the number of steps.
    path_loss, path_m, path_theta, path_q : array (seed, start, record)
        F(Q_t)/d, :math:`m=1_d\cdot Q/d`, :math:`\theta=\sigma^2Q\cdot Q^\star/d` (both signed) and
        :math:`q=\sigma^2|Q|^2/d` along the path.
    train_loss, m, theta, q : array (seed, start)
        The last of each.
    gradient_norm : array (seed, start)
        Of the gradient at the last Q, divided by lam sqrt(d): how far the run is from a stationary point.
    test_error, test_error_se : array (seed, start)
        Mean of :math:`|y - f|^2/(2d)` over fresh samples at the last Q, and its standard error.
    diverged : array (seed, start)
        Whether the risk was not finite or exceeded twice the larger of F(Q_0) and F(0). Such a run is frozen at the
        last Q below that limit: its numbers say where it blew up and are no result.
    Q : array (seed, start, d)
    Q_star : array (seed, d)
    """

    problem: PositionalSemantic
    seeds: np.ndarray
    starts: tuple
    steps: np.ndarray
    path_loss: np.ndarray
    path_m: np.ndarray
    path_theta: np.ndarray
    path_q: np.ndarray
    train_loss: np.ndarray
    m: np.ndarray
    theta: np.ndarray
    q: np.ndarray
    gradient_norm: np.ndarray
    test_error: np.ndarray
    test_error_se: np.ndarray
    diverged: np.ndarray
    Q: np.ndarray
    Q_star: np.ndarray


def train_by_descent(
    problem,
    *,
    d,
    seeds,
    starts,
    n_steps,
    learning_rate,
    optimiser="gd",
    record_every=None,
    n_test=2000,
    device=None,
    dtype="float64",
    progress=False,
):
    r"""Train the attention layer of Part I by full-batch gradient descent or Adam, from every start on every data set.

    Gradient descent is as above. Adam moves each component by

    .. math::

        -\eta\,\frac{a_t/(1-\beta_1^t)}{\sqrt{b_t/(1-\beta_2^t)}+10^{-8}}, \qquad
        a_t = \beta_1 a_{t-1}+(1-\beta_1)\,\nabla F, \quad b_t = \beta_2 b_{t-1}+(1-\beta_2)\,(\nabla F)^2,

    with :math:`\beta_1=0.9`, :math:`\beta_2=0.999`; the ridge penalty is part of F. A seed gives the data of
    :func:`~attn_lib.simulation.erm.train_positional_semantic`, so the minima reached can be compared.

    Parameters
    ----------
    problem : PositionalSemantic
    d : int
        Dimension of the tokens, >= 2.
    seeds : iterable of int
        Distinct, >= 0; one data set each.
    starts : Start, or iterable of Start
        One run each. Random parts are drawn in this order from the seed, independently.
    n_steps : int
        >= 1. Nothing stops earlier; ``gradient_norm`` tells what is missing.
    learning_rate : float
        The step eta, > 0. Gradient descent needs less than 2/(largest curvature).
    optimiser : str
        "gd" or "adam".
    record_every : int, optional
        Record the path every so many steps; by default the first and the last only.
    n_test : int
        Fresh samples per seed, >= 2.
    device : str, optional
        "cpu", "cuda", "cuda:1"...; by default "cuda" where there is one.
    dtype : str
        "float64" or "float32", for the descent; data and test error are float64 always.
    progress : bool
        Show a progress bar over seeds.

    Returns
    -------
    Descent

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed; also when every run diverges, with the range of the
        learning rate below which gradient descent is stable at the starts.

    Accuracy
    --------
    The path is that of the discrete map. In directions of curvature c what is left after t steps is of order
    exp(-learning_rate c t); the lowest curvature of a minimum is of order lam.

    Source
    ------
    arXiv 2402.03902: the recipes of its experiments (gradient descent: step 0.15, 5000 steps, d = 1000, starts Q*
    and 1_d/sqrt(d); Adam: step 0.01, 2500 steps, d = 100, start 0.1 N(0, I_d)), on Gram matrices instead of outputs.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> problem = PositionalSemantic(alpha=2.0, omega=0.3)
    >>> starts = Start(semantic=1.0), Start(random=0.1)
    >>> run = train_by_descent(problem, d=50, seeds=[0], starts=starts, n_steps=200, learning_rate=0.15, device="cpu")
    >>> run.m.shape, bool(run.diverged.any()), bool((run.path_loss[..., -1] < run.path_loss[..., 0]).all())
    ((1, 2), False, True)
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    starts = (starts,) if isinstance(starts, Start) else tuple(starts) if isinstance(starts, Iterable) else starts
    record_every = n_steps if record_every is None else record_every
    n, device = attention_size(problem, d), chosen_device(device, dtype)
    _check(seeds, starts, n_steps, learning_rate, optimiser, record_every, n_test)
    steps = np.array([t for t in range(n_steps + 1) if t % record_every == 0 or t == n_steps])
    groups = batches(seeds, device, attention_bytes(d, n, len(starts), dtype), CACHED // (2 * n * d))
    columns, limits = [], []
    with tqdm(total=len(seeds), desc=optimiser, disable=not progress) as bar:
        for batch in groups:
            Q_star = np.array([draw_target(d, seed) for seed in batch])
            samples = (draw_sample(problem, q, n=n, seed=s) for q, s in zip(Q_star, batch, strict=True))
            risk = AttentionRisk(samples, problem.lam, device=torch.device(device), dtype=DTYPES[dtype])
            Q0 = np.array([_initial(starts, q, s) for q, s in zip(Q_star, batch, strict=True)])
            Q0, target = (risk.tokens.new_tensor(v) for v in (Q0, Q_star[:, None]))
            found = descend(risk, Q0, target, steps=steps.tolist(), update=OPTIMISERS[optimiser](learning_rate))
            if found.diverged.all():
                limits += [2 / largest_curvature(risk, Q).max().item() for Q in (Q0, found.Q)]
            columns.append(_measured(problem, batch, n_test, found, Q_star))
            bar.update(len(batch))
    columns = {name: np.concatenate([c[name] for c in columns]) for name in columns[0]}
    if columns["diverged"].all():
        bound = {
            "gd": f"{min(limits):.2g}, which is 2/(largest curvature met)",
            "adam": "1, the size of a component of Q",
        }
        raise ValueError(f"learning_rate = {learning_rate!r}: every run diverged; must be below {bound[optimiser]}")
    return Descent(problem=problem, seeds=np.array(seeds), starts=starts, steps=steps, **columns)


def _measured(problem, seeds, n_test, found, Q_star):
    """What Descent holds, for these seeds."""
    d = Q_star.shape[-1]
    loss, m, theta, q = found.path.cpu().numpy().astype(float) / d
    larger = np.where(abs(m[..., -1]) > abs(theta[..., -1]), m[..., -1], theta[..., -1])
    sign = np.where(larger < 0, -1.0, 1.0)[..., None]
    path = {"loss": loss, "m": sign * m, "theta": problem.rho * sign * theta, "q": problem.rho * q}
    Q = sign * found.Q.cpu().numpy().astype(float)
    errors = np.array([_test_errors(problem, seed, n_test, *run) for seed, *run in zip(seeds, Q, Q_star, strict=True)])
    return {
        **{f"path_{name}": v for name, v in path.items()},
        **{{"loss": "train_loss"}.get(name, name): v[..., -1] for name, v in path.items()},
        "gradient_norm": found.gradient_norm.cpu().numpy() / (problem.lam * d**0.5),
        "diverged": found.diverged.cpu().numpy(),
        "test_error": errors.mean(-1),
        "test_error_se": errors.std(-1, ddof=1) / n_test**0.5,
        "Q": Q,
        "Q_star": Q_star,
    }


def _test_errors(problem, seed, n_test, Q, Q_star):
    """Of every run of a seed on the same fresh samples, (start, n_test)."""
    x, T = draw_sample(problem, Q_star, n=n_test, seed=seed, stream="test")
    gram = gram_matrices(x)
    return [squared_error(T, student_attention(x, run), gram) / 2 for run in Q]


def _initial(starts, Q_star, seed):
    rng = generator(seed, "start")
    return [a + b * Q_star + c * rng.standard_normal(len(Q_star)) for a, b, c in starts]


def _check(seeds, starts, n_steps, learning_rate, optimiser, record_every, n_test):
    check_seeds(seeds)
    starts_ok = (
        isinstance(starts, tuple)
        and starts
        and all(isinstance(s, Start) and all(map(is_real, s)) and any(s) for s in starts)
    )
    require(starts_ok, "starts", starts, "one or more Start with finite coefficients that are not all zero")
    check_integers(1, n_steps=n_steps, record_every=record_every)
    check_positive(learning_rate=learning_rate)
    require(optimiser in tuple(OPTIMISERS), "optimiser", optimiser, f"one of {tuple(OPTIMISERS)}")
    check_integers(2, n_test=n_test)
