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
from attn_lib.simulation._checks import check_memory, check_seeds, is_integer, is_real, require
from attn_lib.simulation.lbfgs import minimise
from attn_lib.simulation.sensing import TokenMeasurement
from attn_lib.simulation.single_head_risk import DirectRisk, FactorisedRisk, attention_loss
from attn_lib.simulation.single_head_sampling import draw_matrix, draw_start, labelled_tokens

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


def train_direct(problem, *, d, seeds, start=0, scale=1.0, n_test=10_000, tolerance=1e-4, max_iter=5000):
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
    d, n = _checked_size(problem, d, n_test)
    require(is_integer(start) and start >= 0, "start", start, "an integer >= 0")
    require(is_integer(max_iter) and max_iter >= 1, "max_iter", max_iter, "an integer >= 1")
    for name, value in (("scale", scale), ("tolerance", tolerance)):
        require(is_real(value) and value > 0, name, value, "a finite number > 0")
    check_seeds(seeds)
    rows = [_train(problem, d, n, seed, _start(d, seed, start, scale), n_test, tolerance, max_iter) for seed in seeds]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return TrainedDirect(problem=problem, seeds=np.array(seeds), **columns)


def cross_validation(problem, *, d, seeds, lams, direct=False, folds=5, tolerance=1e-3, max_iter=5000):
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
    tolerance, max_iter
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
    d, n = _checked_size(problem, d, 2)
    lams = list(lams) if isinstance(lams, Iterable) else lams
    lams_ok = isinstance(lams, list) and lams and all(is_real(lam) and lam > 0 for lam in lams)
    require(lams_ok and sorted(set(lams)) == lams, "lams", lams, "rising numbers > 0, not empty")
    require(isinstance(direct, bool), "direct", direct, "True or False")
    require(is_integer(folds) and 2 <= folds <= n, "folds", folds, f"an integer in [2, {n}]")
    require(is_real(tolerance) and tolerance > 0, "tolerance", tolerance, "a finite number > 0")
    require(is_integer(max_iter) and max_iter >= 1, "max_iter", max_iter, "an integer >= 1")
    check_seeds(seeds)
    p = round(problem.kappa * d)
    require(direct or p >= 1, "kappa", problem.kappa, f"large enough for round(kappa d) >= 1 at d = {d}")
    errors = np.zeros((len(seeds), len(lams)))
    for row, seed in zip(errors, seeds, strict=True):
        x, Y = labelled_tokens(problem, draw_matrix(problem, d, seed), n=n, seed=seed)
        for fold in range(folds):
            left_out = torch.arange(n) % folds == fold
            kept, test = ([v[mask][None] for v in (x, Y)] for mask in (~left_out, left_out))
            row += _path(problem, d, p, seed, lams, direct, *kept, *test, tolerance, max_iter) / n
    return errors


def _path(problem, d, p, seed, lams, direct, x, Y, x_test, Y_test, tolerance, max_iter):
    """Sum of the losses of the test samples at each lambda."""
    measurement, loss = TokenMeasurement(x), attention_loss(problem, "seq2lab", x, Y)
    fresh, test_loss = TokenMeasurement(x_test), attention_loss(problem, "seq2lab", x_test, Y_test)
    Q = _start(d, seed, 0, 1.0) if direct else torch.as_tensor(draw_start(d, p, seed, 0)).reshape(1, -1)
    errors = []
    for lam in lams:
        risk = DirectRisk(measurement, loss, lam, d=d) if direct else FactorisedRisk(measurement, loss, lam, d=d, p=p)
        unit = risk.lam * (d if direct else p * d) ** 0.5
        minimum = minimise(risk, Q, tolerance=tolerance * unit, max_iter=max_iter)
        if not minimum.converged.all():
            n_iter = minimum.n_iter.item()
            message = f"{problem} at lam = {lam}, seed {seed}: not converged after {n_iter} iterations"
            raise ConvergenceError(message, minimum)
        Q = minimum.Q
        errors.append(test_loss.errors(fresh.measure(risk.matrix(Q))).sum().item())
    return np.array(errors)


def _train(problem, d, n, seed, S, n_test, tolerance, max_iter):
    """Minimise for one seed; a dict of results."""
    S0 = draw_matrix(problem, d, seed)
    x, Y = (v[None] for v in labelled_tokens(problem, S0, n=n, seed=seed))
    risk = DirectRisk(TokenMeasurement(x), attention_loss(problem, "seq2lab", x, Y), problem.lam, d=d)
    unit = risk.lam * d**0.5
    minimum = minimise(risk, S, tolerance=tolerance * unit, max_iter=max_iter)
    data_term, _ = risk.loss(risk.fields(minimum.Q))
    x, Y = (v[None] for v in labelled_tokens(problem, S0, n=n_test, seed=seed, stream="test"))
    errors = attention_loss(problem, "seq2lab", x, Y).errors(TokenMeasurement(x).measure(risk.matrix(minimum.Q)))
    S = risk.matrix(minimum.Q)[0].numpy()
    q = (S * S).sum() / d
    return {
        "train_loss": data_term.item() / d**2,
        "penalty": problem.lam * q,
        "test_error": errors.mean().item(),
        "test_error_se": errors.std().item() / n_test**0.5,
        "m": (S * S0).sum() / d,
        "q": q,
        "eigenvalues": np.linalg.eigvalsh(S),
        "gradient_norm": minimum.gradient_norm.item() / unit,
        "n_iter": minimum.n_iter.item(),
        "converged": minimum.converged.item(),
        "S": S,
        "S0": S0,
    }


def _start(d, seed, start, scale):
    """Scale times a matrix of the Gaussian orthogonal ensemble with tr Z^2 = 1, as a vector (1, d d)."""
    G = draw_start(d, d, seed, start)
    return torch.as_tensor(scale * (G + G.T) / (2 * d) ** 0.5).reshape(1, -1)


def _checked_size(problem, d, n_test):
    """d and n."""
    require(isinstance(problem, SingleHead), "problem", problem, "a SingleHead")
    require(is_integer(d) and d >= 2, "d", d, "an integer >= 2")
    d, n = int(d), round(problem.alpha * int(d) ** 2)
    require(n >= 1, "alpha", problem.alpha, f"large enough for round(alpha d^2) >= 1 at d = {d}")
    require(is_integer(n_test) and n_test >= 2, "n_test", n_test, "an integer >= 2")
    check_memory(n, n_test, problem.n_tokens, d)
    return d, n
