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

import numpy as np
import torch

from attn_lib.problems import SingleHead
from attn_lib.simulation._checks import check_integers, check_positive, check_seeds, require, single_head_size
from attn_lib.simulation._hardware import (
    DTYPES,
    SMALL,
    batches,
    check_memory,
    chosen_device,
    single_head_bytes,
    stacked,
)
from attn_lib.simulation.heads_risk import HeadsRisk
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sampling import generator
from attn_lib.simulation.tokens import Gaussian
from attn_lib.simulation.variant_sampling import NEXT_HEAD, variant_data

__all__ = ["TrainedVariant", "train_variant"]


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
    device=None,
    dtype="float64",
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
        See :func:`~attn_lib.simulation.variant_sampling.variant_data`.
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
    device, dtype : str
        As in :func:`~attn_lib.simulation.single_head.train_single_head`.

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
    d, n, p = single_head_size(problem, d)
    device = chosen_device(device, dtype)
    check_seeds(seeds)
    require(max(seeds) < NEXT_HEAD, "seeds", seeds, f"below {NEXT_HEAD}")
    require(isinstance(law, Gaussian), "tokens", law, "a law of attn_lib.simulation.tokens")
    for name, value in (("tied", tied), ("symmetric_target", symmetric_target), ("cross", cross)):
        require(isinstance(value, bool), name, value, "True or False")
    require(not (cross and tied), "tied", tied, "False in cross-attention")
    check_integers(1, n_heads=n_heads, target_heads=target_heads, max_iter=max_iter)
    check_integers(2, n_test=n_test)
    check_positive(tolerance=tolerance)
    # heads multiply what is held per sample and the weights; cross-attention has tokens twice, untied heads weights
    wide = max(n_heads, target_heads) * (1 + cross)
    sizes = {"n": n * wide, "p": p * n_heads * (2 - tied), "n_test": n_test * wide, "dtype": dtype}
    needed = single_head_bytes(problem, d=d, **sizes)
    check_memory(needed, problem, n=n, n_test=n_test, device=device)
    target = {"d": d, "symmetric_target": symmetric_target, "target_heads": target_heads, "cross": cross}
    student = {"p": p, "n_heads": n_heads, "tied": tied}
    kind, rows = {"device": device, "dtype": DTYPES[dtype]}, []
    for batch in batches(seeds, device, needed, SMALL["single head"] // (problem.n_tokens * n * d)):
        rows += _train(problem, law, n, batch, target, student, n_test, tolerance, max_iter, kind)
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return TrainedVariant(problem=problem, seeds=np.array(seeds), **columns)


def _train(problem, law, n, seeds, target, student, n_test, tolerance, max_iter, kind):
    """Minimise for all these seeds at once; one dict of results per seed."""
    d, device = target["d"], kind["device"]
    targets, x, keys, Y = stacked([variant_data(problem, law, n=n, seed=k, **target, **kind) for k in seeds])
    risk = HeadsRisk(x, Y, problem.lam, problem.beta, law.variances(d).to(x), keys=keys, **student)
    start = np.stack([generator(seed, "start").standard_normal(risk.shape).ravel() for seed in seeds])
    unit = risk.lam * start.shape[1] ** 0.5
    minimum = minimise(risk, torch.as_tensor(start, **kind), tolerance=tolerance * unit, max_iter=max_iter)
    data_terms, _ = risk.loss(risk.fields(minimum.Q))
    rows = []
    learned = zip(seeds, targets, risk.matrices(minimum.Q).double(), minimum.Q, strict=True)
    for i, (seed, M0, M, Q) in enumerate(learned):
        fresh = variant_data(problem, law, n=n_test, seed=seed, stream="test", **target, device=device)
        _, x, keys, Y = stacked([fresh])
        fresh = HeadsRisk(x, Y, problem.lam, problem.beta, law.variances(d).to(x), keys=keys, **student)
        singular_values = torch.linalg.svdvals(M)
        row = {
            "train_loss": data_terms[i] / d**2,
            "penalty": risk.lam / 2 * (Q**2).sum() / d**2,
            "test_error": fresh.errors(Q.double()[None]).mean(),
            "m": torch.einsum("hij,kij->hk", M, M0) / d,
            "q": torch.einsum("hij,kij->hk", M, M) / d,
            "rank": (singular_values > 1e-3).double().mean(-1),
            "singular_values": singular_values,
            "asymmetry": ((M - M.mT) ** 2).sum((-2, -1)) / (4 * (M**2).sum((-2, -1))),
            "gradient_norm": minimum.gradient_norm[i] / unit,
            "converged": minimum.converged[i],
            "M": M,
            "M0": M0,
        }
        rows.append({name: value.cpu().numpy() for name, value in row.items()})
    return rows
