r"""Training of a single head of full rank by message passing (:mod:`~attn_lib.simulation.matrix_passing`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import SingleHead
from attn_lib.simulation._checks import (
    check_integers,
    check_positive,
    check_seeds,
    is_real,
    require,
    single_head_size,
)
from attn_lib.simulation._hardware import check_memory, chosen_device, single_head_bytes
from attn_lib.simulation.matrix_passing import message_passing, token_metric
from attn_lib.simulation.matrix_prox import AttentionProx
from attn_lib.simulation.sampling import generator
from attn_lib.simulation.sensing import TokenMeasurement
from attn_lib.simulation.single_head_risk import AttentionLoss
from attn_lib.simulation.single_head_sampling import draw_matrix, labelled_tokens

__all__ = ["MatrixMessagePassing", "Settings", "iterates", "train_by_matrix_amp"]


class Settings(NamedTuple):
    """How message passing was run: arguments of :func:`train_by_matrix_amp`, and n = round(alpha d^2)."""

    d: int
    n: int
    noise: float
    Sigma: float
    n_iter: int
    damping: float
    tolerance: float
    n_test: int


@dataclass(frozen=True, kw_only=True)
class MatrixMessagePassing:
    r"""Runs of :func:`train_by_matrix_amp`: one row per seed, one column per iterate t = 0, ..., n_iter.

    A run that has stopped early, converged or diverged, repeats its last iterate to the end of the row.

    Parameters
    ----------
    problem : SingleHead
    settings : Settings
    seeds : array (seed,)
    m, q, Sigma : array (seed, t)
        tr S S0 and tr S^2, with tr = Tr/d, and the response.
    test_error : array (seed, t)
        Mean over fresh samples with noisy labels of ``|Y - A|^2``.
    train_loss, penalty : array (seed, t)
        The data term of the risk at z(S^t) and :math:`\tilde\lambda\,\mathrm{tr}S^t`, as divided by d^2 in the theory.
    step : array (seed, t - 1)
        :math:`\mathrm{tr}(S^{t+1}-S^t)^2`; 0 once a run has stopped.
    n_iter : array (seed,)
        Iterations made.
    converged, diverged : array (seed,)
        The step fell to the tolerance; or :math:`\Lambda^t` was not positive, or numbers were out of reach of the prox.
    S, S_star, R : array (seed, d, d)
        Last iterate, target, and the matrix whose soft threshold the last iterate is.
    """

    problem: SingleHead
    settings: Settings
    seeds: np.ndarray
    m: np.ndarray
    q: np.ndarray
    Sigma: np.ndarray
    test_error: np.ndarray
    train_loss: np.ndarray
    penalty: np.ndarray
    step: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    diverged: np.ndarray
    S: np.ndarray
    S_star: np.ndarray
    R: np.ndarray


def iterates(problem, S_star, *, n, seed, noise=0.0, Sigma=1.0, damping=0.0, device="cpu"):
    """The iterates of message passing on one data set, without an end.

    Parameters
    ----------
    problem : SingleHead
    S_star : array (d, d)
        Target, from :func:`~attn_lib.simulation.single_head_sampling.draw_matrix`.
    n, seed : int
        Number of samples and seed of the data set.
    noise, Sigma, damping : float
        As in :func:`train_by_matrix_amp`.
    device : str

    Returns
    -------
    iterator of Iterate
        See :func:`~attn_lib.simulation.matrix_passing.message_passing`.
    """
    x, Y = labelled_tokens(problem, S_star, n=n, seed=seed, device=device)
    prox = AttentionProx(Y, problem.beta, token_metric(x))
    S, threshold = _first(len(S_star), seed, noise).to(device), 2 * problem.nuclear_penalty
    return message_passing(TokenMeasurement(x[None]), prox, S, Sigma=Sigma, threshold=threshold, damping=damping)


def train_by_matrix_amp(
    problem,
    *,
    d,
    seeds,
    noise=0.0,
    Sigma=1.0,
    n_iter=20,
    damping=0.0,
    tolerance=0.0,
    n_test=2000,
    device=None,
    progress=False,
):
    r"""Run message passing on the data sets of :func:`~attn_lib.simulation.erm.train_single_head`.

    Parameters
    ----------
    problem : SingleHead
        Its kappa enters through :math:`\tilde\lambda=\sqrt\kappa\lambda` only: the rank of S is not bounded.
    d : int
        Dimension of the tokens, >= 2.
    seeds : iterable of int
        Distinct, >= 0; a seed gives the data set that the other simulations draw for it.
    noise : float
        S^0 is noise times a GOE matrix Z with tr Z^2 = 1, >= 0.
    Sigma : float
        Response :math:`\Sigma^0` of the first iteration, > 0.
    n_iter : int
        Largest number of iterations.
    damping : float
        Weight of the old value of :math:`\Lambda`, in [0, 1); 0 is none.
    tolerance : float
        A run stops when ``|S^{t+1} - S^t|_F / sqrt(d)`` is at most this.
    n_test : int
        Fresh samples for the test error, >= 1.
    device : str, optional
        "cpu", "cuda", "cuda:1"...; by default "cuda" where there is one. In float64, one seed at a time: the n proximal
        problems of one fill a GPU, and runs stop and diverge at their own times.
    progress : bool
        Show a progress bar over seeds.

    Returns
    -------
    MatrixMessagePassing

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.

    Accuracy
    --------
    Overlaps of one run fluctuate around state evolution by O(1/d), and are biased by as much.

    Source
    ------
    Derived here from relaxed belief propagation; the structure is that of message passing for low-rank matrix sensing.
    The metric of a sample is kept at its value at finite d instead of its limit, without which a run at d = 60
    was unstable (alpha = 0.5, lam = 0.01).

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> problem = SingleHead(alpha=1.0, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> run = train_by_matrix_amp(problem, d=30, seeds=range(2), n_iter=8)
    >>> run.q.shape, bool((run.step[:, -1] < run.step[:, 2]).all())
    ((2, 9), True)
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    d, n, _ = single_head_size(problem, d, width=False)
    device = chosen_device(device)
    settings = Settings(d, n, noise, Sigma, n_iter, damping, tolerance, n_test)
    _check(settings, problem, seeds, device)
    rows = [_run(problem, settings, seed, device) for seed in tqdm(seeds, desc="message passing", disable=not progress)]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return MatrixMessagePassing(problem=problem, settings=settings, seeds=np.array(seeds), **columns)


def _run(problem, s, seed, device):
    """All iterations of one seed, as a dict of results."""
    S_star = draw_matrix(problem, s.d, seed)
    target = torch.as_tensor(S_star, device=device)
    x, Y = labelled_tokens(problem, S_star, n=s.n_test, seed=seed, stream="test", device=device)
    fresh, labels = TokenMeasurement(x[None]), AttentionLoss(Y[None], problem.beta)
    options = {"noise": s.noise, "Sigma": s.Sigma, "damping": s.damping, "device": device}
    states = iterates(problem, S_star, n=s.n, seed=seed, **options)
    state, trajectory, steps, diverged = next(states), [], [], False
    previous = state.S
    while True:
        S = state.S
        sums = [(S * target).sum(), (S * S).sum(), S.trace(), ((S - previous) ** 2).sum()]
        *sums, test_error = torch.stack([*sums, labels.errors(fresh.measure(S[None])).mean()]).tolist()
        m, q, trace, step = (v / s.d for v in sums)
        trajectory.append((m, q, state.Sigma, test_error, state.loss / s.d**2, problem.nuclear_penalty * trace))
        if len(trajectory) > 1:
            steps.append(step)
        converged = bool(steps) and step <= s.tolerance**2
        if converged or len(steps) == s.n_iter:
            break
        previous = S
        try:
            state = next(states)
        except (FloatingPointError, ConvergenceError, torch.linalg.LinAlgError):
            diverged = True
            break
    made = len(steps)
    trajectory += [trajectory[-1]] * (s.n_iter - made)
    R = np.zeros_like(S_star) if state.R is None else state.R.cpu().numpy()
    names = ("m", "q", "Sigma", "test_error", "train_loss", "penalty")
    return {
        **dict(zip(names, zip(*trajectory, strict=True), strict=True)),
        "step": steps + [0.0] * (s.n_iter - made),
        **{"n_iter": made, "converged": converged, "diverged": diverged},
        **{"S": state.S.cpu().numpy(), "S_star": S_star, "R": R},
    }


def _first(d, seed, noise):
    G = generator(seed, "start").standard_normal((d, d))
    return torch.as_tensor(noise * (G + G.T) / (2 * d) ** 0.5)


def _check(s, problem, seeds, device):
    for name in ("noise", "tolerance"):
        value = getattr(s, name)
        require(is_real(value) and value >= 0, name, value, "a finite number >= 0")
    check_positive(Sigma=s.Sigma)
    check_integers(1, n_iter=s.n_iter, n_test=s.n_test)
    require(is_real(s.damping) and 0 <= s.damping < 1, "damping", s.damping, "a number in [0, 1)")
    check_seeds(seeds)
    needed = single_head_bytes(problem, d=s.d, n=s.n, p=s.d, n_test=s.n_test)
    check_memory(needed, problem, n=s.n, n_test=s.n_test, device=device)
