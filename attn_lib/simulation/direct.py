r"""Training a symmetric S directly, without factors, on the data of the factorised training; and the choice of lambda.

.. math::

    \min_{S=S^\top}\; \sum_{\mu=1}^n \ell\big(Y^\mu, \mathrm{softmax}(\beta z^\mu(S))\big) + \lambda d|S|_F^2,
    \qquad n = \alpha d^2

The sensing matrices of :mod:`~attn_lib.simulation.sensing` are symmetric and so is the gradient in S: all d^2 entries
are varied, and from a symmetric start every iterate and the minimum are symmetric.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import SingleHead
from attn_lib.simulation._checks import (
    check_integers,
    check_positive,
    check_seeds,
    is_integer,
    is_real,
    require,
    single_head_size,
)
from attn_lib.simulation._hardware import DTYPES, SMALL, batches, check_memory, chosen_device, single_head_bytes
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sensing import TokenMeasurement
from attn_lib.simulation.single_head_risk import DirectRisk, FactorisedRisk, attention_loss
from attn_lib.simulation.single_head_sampling import draw_matrix, draw_start, stacked_tokens

__all__ = ["TrainedDirect", "cross_validation", "train_direct"]


@dataclass(frozen=True, kw_only=True)
class TrainedDirect:
    r"""Minima reached by :func:`train_direct`: arrays with one entry per seed. tr is Tr/d.

    Parameters
    ----------
    problem : SingleHead
    seeds : array (seed,)
    train_loss, penalty : array (seed,)
        The two terms of the minimum divided by d^2: the data term, and :math:`\lambda\,\mathrm{tr}\,S^2`.
    test_error, test_error_se : array (seed,)
        Mean of the loss over fresh samples with noisy labels, and its standard error at fixed S.
    m, q : array (seed,)
        Overlaps tr S S0 and tr S^2.
    eigenvalues : array (seed, d)
        Of S, ascending, of both signs.
    gradient_norm, n_iter, converged : array (seed,)
        Norm of the gradient divided by 2 lambda d^(3/2); iterations; whether the tolerance was reached.
    S, S0 : array (seed, d, d)
        Learned matrices and targets.
    """

    problem: SingleHead
    seeds: np.ndarray
    train_loss: np.ndarray
    penalty: np.ndarray
    test_error: np.ndarray
    test_error_se: np.ndarray
    m: np.ndarray
    q: np.ndarray
    eigenvalues: np.ndarray
    gradient_norm: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    S: np.ndarray
    S0: np.ndarray


def train_direct(
    problem,
    *,
    d,
    seeds,
    start=0,
    scale=1.0,
    n_test=10_000,
    tolerance=1e-4,
    max_iter=5000,
    device=None,
    dtype="float64",
):
    r"""Train S on drawn data sets, one per seed, from a random symmetric matrix of either sign.

    A seed has the target, the training set and the fresh samples that it has in
    :func:`~attn_lib.simulation.single_head.train_single_head`: test errors can be compared seed by seed.

    Parameters
    ----------
    problem : SingleHead
        Its ``lam`` is the ridge lambda of this risk; kappa plays no role.
    d : int
        Dimension of the tokens, >= 2.
    seeds : iterable of int
        Distinct, >= 0.
    start : int
        >= 0, numbers the different starts of a seed.
    scale : float
        The start has :math:`\mathrm{tr}\,S^2` = scale^2; > 0.
    n_test : int
        Fresh samples per seed, >= 2.
    tolerance : float
        On the norm of the gradient divided by 2 lambda d^(3/2), which is that of the penalty at
        :math:`\mathrm{tr}\,S^2=1`; > 0.
    max_iter : int
        >= 1. A run that needs more iterations is returned with converged = False.
    device, dtype : str
        As in :func:`~attn_lib.simulation.single_head.train_single_head`.

    Returns
    -------
    TrainedDirect

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed; also when the data would not fit in the free memory.

    Accuracy
    --------
    Where the loss is convex near the minimum the penalty makes the risk strongly convex, and the tolerance bounds
    :math:`\sqrt{\mathrm{tr}(S-S_{\min})^2}`. It need not be where labels are noisy and lambda is small: compare starts
    and scales.

    Source
    ------
    arXiv 2509.24914, the comparison of factorised and direct training.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur
    >>> problem = SingleHead(alpha=0.5, lam=0.05, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> e = train_direct(problem, d=20, seeds=range(2))
    >>> e.eigenvalues.shape, bool(e.converged.all()), bool((e.eigenvalues[:, 0] < 0).all())
    ((2, 20), True, True)
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    d, n, _ = single_head_size(problem, d, width=False)
    device = chosen_device(device, dtype)
    check_integers(0, start=start)
    check_integers(1, max_iter=max_iter)
    check_integers(2, n_test=n_test)
    check_positive(scale=scale, tolerance=tolerance)
    check_seeds(seeds)
    needed = single_head_bytes(problem, d=d, n=n, p=d, n_test=n_test, dtype=dtype)
    check_memory(needed, problem, n=n, n_test=n_test, device=device)
    rows = []
    for batch in batches(seeds, device, needed, SMALL["single head"] // (problem.n_tokens * n * d)):
        S = np.stack([_start(d, seed, start, scale) for seed in batch])
        S = torch.as_tensor(S, device=device, dtype=DTYPES[dtype])
        rows += _train(problem, d, n, batch, S, n_test, tolerance, max_iter)
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return TrainedDirect(problem=problem, seeds=np.array(seeds), **columns)


def cross_validation(problem, *, d, seeds, lams, direct=False, folds=5, tolerance=1e-3, max_iter=5000, device=None):
    """Validation error at each lambda, by which a user of real data would choose it.

    The training set of a seed is divided into folds, and each is left out in turn: trained without it, at rising
    lambda, each minimum the start of the next.

    Parameters
    ----------
    problem : SingleHead
        Its ``lam`` is ignored.
    d, seeds
        As in :func:`train_direct`.
    lams : sequence of float
        Rising, > 0: weight decays, or ridges if direct.
    direct : bool
        Whether S is trained, or W (d x round(kappa d)).
    folds : int
        From 2 to n: every fold-th sample makes a fold.
    tolerance, max_iter, device
        As in :func:`train_direct`; of the factorised risk as in
        :func:`~attn_lib.simulation.single_head.train_single_head`.

    Returns
    -------
    array (seed, lam)
        Mean loss per sample that was left out.

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.
    ConvergenceError
        A minimum is not reached; ``partial`` is the last point of the training, a Minimum of
        :mod:`attn_lib.simulation.lbfgs`.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur
    >>> problem = SingleHead(alpha=0.5, lam=1.0, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> cross_validation(problem, d=16, seeds=range(2), lams=(0.01, 0.1, 1.0), direct=True).round(2)
    array([[0.2 , 0.22, 0.32],
           [0.17, 0.22, 0.36]])
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    d, n, p = single_head_size(problem, d, width=direct is False)
    device = chosen_device(device)
    lams = list(lams) if isinstance(lams, Iterable) else lams
    lams_ok = isinstance(lams, list) and lams and all(is_real(lam) and lam > 0 for lam in lams)
    require(lams_ok and sorted(set(lams)) == lams, "lams", lams, "rising numbers > 0, not empty")
    require(isinstance(direct, bool), "direct", direct, "True or False")
    require(is_integer(folds) and 2 <= folds <= n, "folds", folds, f"an integer in [2, {n}]")
    check_positive(tolerance=tolerance)
    check_integers(1, max_iter=max_iter)
    check_seeds(seeds)
    needed = single_head_bytes(problem, d=d, n=n, p=d if direct else p, n_test=n)
    check_memory(needed, problem, n=n, n_test=0, device=device)
    left_out = torch.arange(n, device=device) % folds
    errors = []
    for batch in batches(seeds, device, needed, SMALL["single head"] // (problem.n_tokens * n * d)):
        targets = [draw_matrix(problem, d, seed) for seed in batch]
        data = stacked_tokens(problem, targets, n=n, seeds=batch, device=device)
        start = [_start(d, seed, 0, 1.0) if direct else draw_start(d, p, seed, 0).ravel() for seed in batch]
        start, total = torch.as_tensor(np.stack(start), device=device), 0.0
        for fold in range(folds):
            kept, test = ([v[:, mask] for v in data] for mask in (left_out != fold, left_out == fold))
            total = total + _path(problem, d, p, batch, start, lams, direct, *kept, *test, tolerance, max_iter) / n
        errors.append(total)
    return np.concatenate(errors)


def _path(problem, d, p, seeds, Q, lams, direct, x, Y, x_test, Y_test, tolerance, max_iter):
    """Sum of the losses of the test samples, (seed, lam), trained from Q (seed, parameters)."""
    measurement, loss = TokenMeasurement(x), attention_loss(problem, "seq2lab", x, Y)
    fresh, test_loss = TokenMeasurement(x_test), attention_loss(problem, "seq2lab", x_test, Y_test)
    errors = []
    for lam in lams:
        risk = DirectRisk(measurement, loss, lam, d=d) if direct else FactorisedRisk(measurement, loss, lam, d=d, p=p)
        unit = risk.lam * (d if direct else p * d) ** 0.5
        minimum = minimise(risk, Q, tolerance=tolerance * unit, max_iter=max_iter)
        failed = minimum.converged.logical_not().cpu().numpy()
        if failed.any():
            seed, n_iter = seeds[failed.argmax()], minimum.n_iter[failed.argmax()].item()
            message = f"{problem} at lam = {lam}, seed {seed}: not converged after {n_iter} iterations"
            raise ConvergenceError(message, minimum)
        Q = minimum.Q
        errors.append(test_loss.errors(fresh.measure(risk.matrix(Q))).sum(1).cpu().numpy())
    return np.stack(errors, axis=1)


def _train(problem, d, n, seeds, S, n_test, tolerance, max_iter):
    """Minimise for all these seeds at once, from S (seed, d d); one dict of results per seed."""
    targets = [draw_matrix(problem, d, seed) for seed in seeds]
    x, Y = stacked_tokens(problem, targets, n=n, seeds=seeds, device=S.device, dtype=S.dtype)
    risk = DirectRisk(TokenMeasurement(x), attention_loss(problem, "seq2lab", x, Y), problem.lam, d=d)
    unit = risk.lam * d**0.5
    minimum = minimise(risk, S, tolerance=tolerance * unit, max_iter=max_iter)
    data_term, _ = risk.loss(risk.fields(minimum.Q))
    learned = risk.matrix(minimum.Q).double()
    rows = []
    for i, (seed, S0) in enumerate(zip(seeds, targets, strict=True)):
        x, Y = stacked_tokens(problem, [S0], n=n_test, seeds=[seed], stream="test", device=S.device)
        errors = attention_loss(problem, "seq2lab", x, Y).errors(TokenMeasurement(x).measure(learned[i : i + 1]))
        matrix = learned[i].cpu().numpy()
        q = (matrix * matrix).sum() / d
        rows.append({
            "train_loss": data_term[i].item() / d**2,
            "penalty": problem.lam * q,
            "test_error": errors.mean().item(),
            "test_error_se": errors.std().item() / n_test**0.5,
            "m": (matrix * S0).sum() / d,
            "q": q,
            "eigenvalues": np.linalg.eigvalsh(matrix),
            "gradient_norm": minimum.gradient_norm[i].item() / unit,
            "n_iter": minimum.n_iter[i].item(),
            "converged": minimum.converged[i].item(),
            "S": matrix,
            "S0": S0,
        })  # fmt: skip
    return rows


def _start(d, seed, start, scale):
    """Scale times a matrix of the Gaussian orthogonal ensemble with tr Z^2 = 1, as a vector (d d,)."""
    G = draw_start(d, d, seed, start)
    return (scale * (G + G.T) / (2 * d) ** 0.5).ravel()
