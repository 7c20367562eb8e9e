r"""Search for minima of the empirical risk below those that informed starts reach.

A run of :func:`~attn_lib.simulation.erm.train_positional_semantic` ends in one minimum near its branch. Here new starts
are derived from the lowest minimum known and minimised. One that ends lower is kept if it has not left the branch: its
own overlap (m, or :math:`\theta/\sigma^2`) must be the larger of the two. Three ways to derive a start:

- *perturbation* (basin hopping): :math:`Q' = (Q + s\,\xi)/\sqrt{1+s^2}` with noise of the norm of Q, so that
  :math:`|Q'|\approx|Q|`;
- *annealing*: Langevin steps :math:`Q \leftarrow Q - \eta\,\nabla F(Q) + \sqrt{2T\eta}\,\xi`, the temperature T
  falling to 0;
- *message passing*: the state of :func:`~attn_lib.simulation.amp.train_by_amp`, with the global prox, after some
  iterations.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation._checks import check_integers, is_integer, require
from attn_lib.simulation._hardware import SMALL, attention_bytes, batches, chosen_device
from attn_lib.simulation.amp import train_by_amp
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.simulation.lbfgs import minimise, value_and_gradient
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.sampling import draw_sample

__all__ = ["SIZES", "SearchSettings", "SearchedMinima", "search_lower_minima"]

# Relative size s of the noise; temperature at the beginning; number of iterations before the first state that is used.
SIZES = {"perturbation": 1.5, "annealing": 3e-3, "message passing": 15}
_STEPS, _RATE = 400, 4.0  # of annealing
_TOLERANCE, _MAX_ITER = 1e-5, 1000
_LOWER = 1e-7  # relative: less is the same minimum


class SearchSettings(NamedTuple):
    """Arguments of :func:`search_lower_minima`."""

    d: int
    start: str
    method: str
    size: float
    n_rounds: int
    n_runs: int


@dataclass(frozen=True, kw_only=True)
class SearchedMinima:
    r"""The lowest minimum found for each seed.

    Parameters
    ----------
    problem : PositionalSemantic
    settings : SearchSettings
    seeds : array (seed,)
    on_branch : array (seed,)
        Whether the lowest minimum lies on the branch; False where the informed start itself has left it, and nothing
        lower on the branch was found.
    history : array (seed, round + 1)
        Lowest loss on the branch so far, divided by d, from the informed start on.
    train_loss : array (seed,)
        Its last column.
    q, m, theta : array (seed,)
        Overlaps of the lowest minimum, as in :class:`~attn_lib.simulation.erm.TrainedAttention`.
    distance : array (seed,)
        :math:`\sigma^2|Q-Q_0|^2/(2d)` between it and the minimum Q_0 of the informed start, for the nearer of Q and -Q.
    Q : array (seed, d)
    """

    problem: PositionalSemantic
    settings: SearchSettings
    seeds: np.ndarray
    on_branch: np.ndarray
    history: np.ndarray
    train_loss: np.ndarray
    q: np.ndarray
    m: np.ndarray
    theta: np.ndarray
    distance: np.ndarray
    Q: np.ndarray


def search_lower_minima(
    problem, *, d, seeds, start="semantic", method="perturbation", size=None, n_rounds=10, n_runs=4, device=None
):
    """Search below the minimum of an informed start, on the same data.

    Parameters
    ----------
    problem : PositionalSemantic
    d : int
        Dimension of the tokens, >= 2.
    seeds : iterable of int
        Distinct, >= 0.
    start : str
        "semantic" or "positional".
    method : str
        "perturbation", "annealing" or "message passing".
    size : float, optional
        Of the noise, initial temperature, or number of iterations, > 0; by default ``SIZES[method]``.
    n_rounds : int
        Each round starts from the lowest minimum so far; in message passing, it takes one iteration more. >= 1.
    n_runs : int
        New starts per round, >= 1; message passing has one.
    device : str, optional
        "cpu", "cuda", "cuda:1"...; by default "cuda" where there is one, which takes many seeds at once.

    Returns
    -------
    SearchedMinima

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.

    Accuracy
    --------
    A found loss is an upper bound for its branch. A run that has not converged counts with the loss it has.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> problem = PositionalSemantic(alpha=0.65, omega=0.0)
    >>> found = search_lower_minima(problem, d=60, seeds=[0], start="positional", n_rounds=3)
    >>> bool((np.diff(found.history) <= 0).all())
    True
    """
    require(start in ("semantic", "positional"), "start", start, "'semantic' or 'positional'")
    require(method in SIZES, "method", method, f"one of {tuple(SIZES)}")
    size = SIZES[method] if size is None else size
    ok = is_integer(size) if method == "message passing" else np.isscalar(size) and np.isfinite(size)
    require(ok and size > 0, "size", size, "an integer >= 1" if method == "message passing" else "a finite number > 0")
    check_integers(1, n_rounds=n_rounds, n_runs=n_runs)
    device = chosen_device(device)
    trained = train_positional_semantic(problem, d=d, seeds=seeds, start=start, n_test=2, device=device)
    settings = SearchSettings(d, start, method, float(size), n_rounds, n_runs)
    rows = []
    n, found = trained.settings.n, range(len(trained.seeds))
    for batch in batches(found, device, attention_bytes(d, n, n_runs, "float64"), SMALL["attention"] // (2 * n * d)):
        rows += _search(problem, settings, trained, batch, device)
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return SearchedMinima(problem=problem, settings=settings, seeds=trained.seeds, **columns)


def _search(problem, s, trained, batch, device):
    """Search for these entries of the trained layers at once; one dict of results per seed."""
    seeds = trained.seeds[batch].tolist()
    informed, targets = trained.Q[batch], trained.Q_star[batch]
    samples = (draw_sample(problem, q, n=trained.settings.n, seed=k) for q, k in zip(targets, seeds, strict=True))
    risk = AttentionRisk(samples, problem.lam, device=torch.device(device), dtype=torch.float64)
    rngs = [np.random.default_rng([seed, sum(map(ord, s.method))]) for seed in seeds]
    tolerance = _TOLERANCE * problem.lam * s.d**0.5
    lowest, histories = informed.copy(), [[loss] for loss in trained.train_loss[batch]]
    for i in range(s.n_rounds):
        starts = torch.as_tensor(_starts(problem, s, risk, lowest, seeds, i, rngs), device=device)
        found = minimise(risk, starts, tolerance=tolerance, max_iter=_MAX_ITER)
        runs = zip(found.Q.cpu().numpy(), found.value.cpu().numpy() / s.d, strict=True)
        for k, (points, losses) in enumerate(runs):
            on_branch = _on_branch(points, targets[k], s.start)
            best = np.where(on_branch, losses, np.inf).argmin()
            lower = on_branch[best] and losses[best] < (1 - _LOWER) * histories[k][-1]
            histories[k].append(losses[best] if lower else histories[k][-1])
            if lower:
                lowest[k] = points[best]
    return [
        {
            "on_branch": bool(_on_branch(Q[None], Q_star, s.start)[0]),
            "history": history,
            "train_loss": history[-1],
            "q": problem.rho * (Q @ Q) / s.d,
            "m": abs(Q.mean()),
            "theta": problem.rho * abs(Q @ Q_star) / s.d,
            "distance": problem.rho * min(((Q - Q0) ** 2).sum(), ((Q + Q0) ** 2).sum()) / (2 * s.d),
            "Q": Q,
        }
        for Q, Q0, Q_star, history in zip(lowest, informed, targets, histories, strict=True)
    ]


def _on_branch(points, Q_star, start):
    """Whether the overlap of the branch is the larger one, for each of the points (run, d)."""
    m, theta = np.abs(points.mean(axis=1)), np.abs(points @ Q_star) / len(Q_star)
    return theta > m if start == "semantic" else m > theta


def _starts(problem, s, risk, Q, seeds, i, rngs):
    """New starts of every seed, (seed, run, d), from its lowest minimum Q (seed, d)."""
    size, shape = s.size, (s.n_runs, s.d)
    if s.method == "perturbation":
        length = np.linalg.norm(Q, axis=1)[:, None, None] / s.d**0.5
        noise = length * np.stack([rng.standard_normal(shape) for rng in rngs])
        return (Q[:, None] + size * noise) / np.sqrt(1 + size**2)
    if s.method == "annealing":
        return _annealed(risk, np.repeat(Q[:, None], s.n_runs, axis=1), size, rngs)
    device = str(risk.tokens.device)
    return train_by_amp(problem, d=s.d, seeds=seeds, start=s.start, n_iter=int(size) + i, device=device).Q[:, None]


def _annealed(risk, Q, temperature, rngs):
    """Langevin steps; their noise is drawn before the first, so that it goes to the device at once."""
    noise = np.stack([rng.standard_normal((_STEPS, *Q.shape[1:])) for rng in rngs], axis=1)
    Q, noise = risk.tokens.new_tensor(Q), risk.tokens.new_tensor(noise)
    for step in range(_STEPS):
        T = temperature * (1 - step / _STEPS) ** 2
        _, gradient = value_and_gradient(risk, Q)
        Q = Q - _RATE * gradient + (2 * T * _RATE) ** 0.5 * noise[step]
    return Q.cpu().numpy()
