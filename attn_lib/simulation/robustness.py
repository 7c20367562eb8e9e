r"""Training of layers that leave the assumptions of Part II one at a time.

.. math::

    Y = \frac1{H_0}\sum_h\mathrm{softmax}(\beta_0(z(M_{0,h})+\xi_h)), \qquad
    \min\;\sum_{\mu=1}^n\Big|\frac1H\sum_h\mathrm{softmax}(\beta z^\mu(M_h))-Y^\mu\Big|^2+\text{decay},\qquad
    n=\alpha d^2

Queries and keys may have weights of their own, the target may lack symmetry, there may be several heads, and tokens may
follow any law of :mod:`attn_lib.simulation.tokens`. With nothing changed this is
:func:`~attn_lib.simulation.single_head.train_single_head`, on the same data.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from attn_lib.problems import SingleHead
from attn_lib.simulation._checks import check_memory, check_seeds, is_integer, is_real, require
from attn_lib.simulation.heads_risk import HeadsRisk, preactivations
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sampling import generator
from attn_lib.simulation.sensing import pairs
from attn_lib.simulation.single_head_sampling import draw_matrix, uniform_rotation
from attn_lib.simulation.tokens import Gaussian

__all__ = ["TrainedVariant", "VariantData", "train_variant", "variant_data"]

NEXT_HEAD = 1_000_000  # added to a seed for the target of the next head


class VariantData(NamedTuple):
    """Targets M0 (head, d, d), tokens x (n, T, d), those of the keys (None in self-attention), labels Y (n, T, T)."""

    M0: torch.Tensor
    x: torch.Tensor
    keys: torch.Tensor | None
    Y: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class TrainedVariant:
    r"""Minima reached by :func:`train_variant`: arrays with one entry per seed. tr is Tr/d.

    Parameters
    ----------
    problem : SingleHead
    seeds : array (seed,)
    train_loss, penalty : array (seed,)
        The two terms of the minimum divided by d^2.
    test_error : array (seed,)
        Mean of the loss over fresh samples with noisy labels.
    m : array (seed, head, target head)
        Overlaps :math:`\mathrm{tr}\,M_hM_{0,k}^\top`.
    q : array (seed, head, head)
        Overlaps :math:`\mathrm{tr}\,M_hM_k^\top`.
    rank : array (seed, head)
        Fraction of singular values of M above 1e-3.
    singular_values : array (seed, head, d)
        Of M, descending.
    asymmetry : array (seed, head)
        Share of the square of M that is antisymmetric: 0 if M is symmetric, 1/2 on average if it has no symmetry.
    gradient_norm, converged : array (seed,)
        Norm of the gradient over that of the decay at weights of variance one; whether it reached the tolerance.
    M, M0 : array (seed, head, d, d)
        Learned maps and targets.
    """

    problem: SingleHead
    seeds: np.ndarray
    train_loss: np.ndarray
    penalty: np.ndarray
    test_error: np.ndarray
    m: np.ndarray
    q: np.ndarray
    rank: np.ndarray
    singular_values: np.ndarray
    asymmetry: np.ndarray
    gradient_norm: np.ndarray
    converged: np.ndarray
    M: np.ndarray
    M0: np.ndarray


def variant_data(problem, tokens, *, d, n, seed, stream="train", symmetric_target=True, target_heads=1, cross=False):
    r"""Targets, tokens and labels of a seed.

    A target without symmetry is :math:`M_0=S_0R` with a uniform rotation R: the singular values of S0 and no relation
    between its two sides. Its noise is independent for all T^2 pre-activations, of variance Delta/2, as in
    cross-attention; that of self-attention with a symmetric target is as in
    :func:`~attn_lib.simulation.single_head_sampling.labelled_tokens`.

    Parameters
    ----------
    problem : SingleHead
    tokens
        A law of :mod:`attn_lib.simulation.tokens`.
    d, n : int
        Dimension and number of samples.
    seed : int
        >= 0.
    stream : str
        "train", or "test" for fresh samples.
    symmetric_target : bool
    target_heads : int
        >= 1.
    cross : bool
        Whether keys belong to tokens of their own.

    Returns
    -------
    VariantData
    """
    M0 = np.stack([_target(problem, d, seed + NEXT_HEAD * h, symmetric_target) for h in range(target_heads)])
    T, M0 = problem.n_tokens, torch.as_tensor(M0)
    symmetric_noise = symmetric_target and not cross
    n_noise = T * (T + 1) // 2 if symmetric_noise else T * T
    widths = (T * d, target_heads * n_noise, T * d * cross)
    numbers = torch.as_tensor(generator(seed, stream).standard_normal((n, sum(widths))))
    g, noise, g_keys = numbers.split(widths, dim=1)
    x = tokens.draw(g.unflatten(1, (T, d)), seed)
    keys = tokens.draw(g_keys.unflatten(1, (T, d)), seed) if cross else None
    noise = noise.unflatten(1, (target_heads, n_noise)) * (problem.Delta / 2) ** 0.5
    if symmetric_noise:
        a, b = pairs(T)
        xi = noise.new_zeros(n, target_heads, T, T)
        xi[..., a, b] = xi[..., b, a] = torch.where(a == b, 2**0.5, 1.0) * noise
    else:
        xi = noise.unflatten(-1, (T, T))
    z = preactivations(x, M0, tokens.variances(d), keys)
    return VariantData(M0, x, keys, torch.softmax(problem.beta0 * (z + xi), dim=-1).mean(1))


def train_variant(
    problem,
    *,
    d,
    seeds,
    tokens=None,
    tied=True,
    symmetric_target=True,
    n_heads=1,
    target_heads=1,
    cross=False,
    n_test=10_000,
    tolerance=1e-4,
    max_iter=2000,
):
    r"""Train a layer with the stated changes on drawn data sets, one per seed, from random weights.

    Parameters
    ----------
    problem : SingleHead
        n = round(alpha d^2) samples; every matrix of weights has p = round(kappa d) columns.
    d : int
        Dimension of the tokens, >= 2.
    seeds : iterable of int
        Distinct, in [0, 10^6).
    tokens : optional
        A law of :mod:`attn_lib.simulation.tokens`; standard Gaussian by default.
    tied : bool
        Whether queries and keys share their weights.
    symmetric_target : bool
        See :func:`variant_data`.
    n_heads, target_heads : int
        >= 1.
    cross : bool
        Cross-attention, where keys belong to tokens of their own; untied.
    n_test : int
        Fresh samples per seed, >= 2.
    tolerance : float
        On the norm of the gradient over that of the decay at weights of variance one, > 0.
    max_iter : int
        >= 1. A run that needs more iterations is returned with converged = False.

    Returns
    -------
    TrainedVariant

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.

    Accuracy
    --------
    The minimum is exact to the tolerance; its overlaps and spectrum are those of one start.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur
    >>> problem = SingleHead(alpha=1.0, lam=0.1, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> e = train_variant(problem, d=16, seeds=range(2), tied=False)
    >>> e.singular_values.shape, bool(e.converged.all()), bool((e.asymmetry > 0).all())
    ((2, 1, 16), True, True)
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    law = Gaussian() if tokens is None else tokens
    flags = {"tied": tied, "symmetric_target": symmetric_target, "cross": cross}
    _check(problem, d, seeds, law, flags, tolerance)
    require(not (cross and tied), "tied", tied, "False in cross-attention")
    for name, value, low in (
        ("n_heads", n_heads, 1),
        ("target_heads", target_heads, 1),
        ("n_test", n_test, 2),
        ("max_iter", max_iter, 1),
    ):
        require(is_integer(value) and value >= low, name, value, f"an integer >= {low}")
    d = int(d)
    check_memory(round(problem.alpha * d**2), n_test, problem.n_tokens, d)
    target = {"d": d, "symmetric_target": symmetric_target, "target_heads": target_heads, "cross": cross}
    student = {"p": round(problem.kappa * d), "n_heads": n_heads, "tied": tied}
    rows = [_train(problem, law, seed, target, student, n_test, tolerance, max_iter) for seed in seeds]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return TrainedVariant(problem=problem, seeds=np.array(seeds), **columns)


def _target(problem, d, seed, symmetric):
    """S0, or S0 R."""
    S0 = draw_matrix(problem, d, seed)
    if symmetric:
        return S0
    # a stream of its own, as the embeddings of attn_lib.simulation.tokens have
    return S0 @ uniform_rotation(np.random.default_rng([1001, seed]), d)


def _train(problem, law, seed, target, student, n_test, tolerance, max_iter):
    d, variances = target["d"], law.variances(target["d"])
    M0, x, keys, Y = variant_data(problem, law, n=round(problem.alpha * d**2), seed=seed, **target)
    risk = HeadsRisk(x, Y, problem.lam, problem.beta, variances, keys=keys, **student)
    start = torch.as_tensor(generator(seed, "start").standard_normal(risk.shape)).reshape(1, -1)
    unit = risk.lam * start.numel() ** 0.5
    minimum = minimise(risk, start, tolerance=tolerance * unit, max_iter=max_iter)
    _, x, keys, Y = variant_data(problem, law, n=n_test, seed=seed, stream="test", **target)
    fresh = HeadsRisk(x, Y, problem.lam, problem.beta, variances, keys=keys, **student)
    M = risk.matrices(minimum.Q)
    singular_values = torch.linalg.svdvals(M)
    data_term, _ = risk.loss(risk.fields(minimum.Q))
    squares = (M**2).sum((-2, -1))
    values = {
        "train_loss": data_term[0] / d**2,
        "penalty": risk.lam / 2 * (minimum.Q**2).sum() / d**2,
        "test_error": fresh.errors(minimum.Q).mean(),
        "m": torch.einsum("hij,kij->hk", M, M0) / d,
        "q": torch.einsum("hij,kij->hk", M, M) / d,
        "rank": (singular_values > 1e-3).double().mean(-1),
        "singular_values": singular_values,
        "asymmetry": ((M - M.mT) ** 2).sum((-2, -1)) / (4 * squares),
        "gradient_norm": minimum.gradient_norm[0] / unit,
        "converged": minimum.converged[0],
        "M": M,
        "M0": M0,
    }
    return {name: value.numpy() for name, value in values.items()}


def _check(problem, d, seeds, law, flags, tolerance):
    require(is_integer(d) and d >= 2, "d", d, "an integer >= 2")
    require(round(problem.alpha * d**2) >= 1, "alpha", problem.alpha, f"large enough for a sample at d = {d}")
    require(round(problem.kappa * d) >= 1, "kappa", problem.kappa, f"large enough for round(kappa d) >= 1 at d = {d}")
    check_seeds(seeds)
    require(max(seeds) < NEXT_HEAD, "seeds", seeds, f"below {NEXT_HEAD}")
    require(isinstance(law, Gaussian), "tokens", law, "a law of attn_lib.simulation.tokens")
    for name, value in flags.items():
        require(isinstance(value, bool), name, value, "True or False")
    require(is_real(tolerance) and tolerance > 0, "tolerance", tolerance, "a finite number > 0")
