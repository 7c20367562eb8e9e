r"""The LASSO at finite d, by the coordinate descent of scikit-learn.

.. math::

    \sum_\mu\Big(y_\mu-\frac{x_\mu\cdot\theta}{\sqrt d}\Big)^2+\lambda|\theta|_1
    = 2n\Big[\frac1{2n}|y-X\theta|^2 + \alpha_{\rm sk}|\theta|_1\Big], \qquad
    X_{\mu i} = \frac{x_{\mu i}}{\sqrt d}, \quad \alpha_{\rm sk} = \frac\lambda{2n}.

The bracket is what ``sklearn.linear_model.Lasso`` minimises; its ``alpha`` is no sample complexity. It works on the
CPU, one coordinate after the other: there is nothing in it that a GPU could do at once.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from attn_lib.problems import DiagonalModel
from attn_lib.simulation._checks import check_seeds, is_integer, is_real, require
from attn_lib.simulation.sampling import generator

__all__ = ["TrainedLasso", "draw_measurements", "optimality_violation", "train_lasso"]


@dataclass(frozen=True, kw_only=True)
class TrainedLasso:
    r"""Minima found by :func:`train_lasso`: arrays with one entry per seed.

    Parameters
    ----------
    problem : DiagonalModel
    n : int
        Samples.
    seeds : array (seed,)
    theta : array (seed, d)
    train_loss, penalty : array (seed,)
        The two terms of the minimum divided by d.
    excess : array (seed,)
        ``|theta - theta*|^2 / d``, exactly the test error minus Delta.
    m, q : array (seed,)
        Overlaps ``theta . theta* / d`` and ``|theta|^2 / d``.
    active : array (seed,)
        Fraction of entries that are not zero.
    violation : array (seed,)
        Of the conditions of optimality, see :func:`optimality_violation`.
    converged : array (seed,)
        Whether the violation is within the tolerance.
    """

    problem: DiagonalModel
    n: int
    seeds: np.ndarray
    theta: np.ndarray
    train_loss: np.ndarray
    penalty: np.ndarray
    excess: np.ndarray
    m: np.ndarray
    q: np.ndarray
    active: np.ndarray
    violation: np.ndarray
    converged: np.ndarray


def train_lasso(problem, *, seeds, tolerance=1e-4, max_iter=20_000):
    """Minimise the risk of a diagonal model on drawn data.

    Parameters
    ----------
    problem : DiagonalModel
        With lam > 0; d is the number of entries of its target.
    seeds : iterable of int
        Distinct, >= 0. A seed fixes the data, which only grow with alpha.
    tolerance : float
        On the violation of the conditions of optimality, in (0, 1).
    max_iter : int
        Sweeps of the coordinate descent, in [1, 2^31).

    Returns
    -------
    TrainedLasso

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.

    Accuracy
    --------
    At the default tolerance entries are off by about 1e-4 times the threshold epsilon of
    :func:`attn_lib.theory.lasso.solve_lasso`, and by more where n is close to the number of entries that are not zero.

    Source
    ------
    The minimiser is scikit-learn's.

    Examples
    --------
    >>> from attn_lib.problems import PowerLaw
    >>> problem = DiagonalModel(alpha=0.5, lam=0.5, Delta=0.5, target=PowerLaw(gamma=1.0, d=200))
    >>> e = train_lasso(problem, seeds=range(3))
    >>> e.theta.shape, bool(e.converged.all())
    ((3, 200), True)
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    require(isinstance(problem, DiagonalModel), "problem", problem, "a DiagonalModel")
    require(problem.lam > 0, "lam", problem.lam, "a number > 0")
    theta_star = problem.target.spectrum
    d = len(theta_star)
    n = round(problem.alpha * d)
    require(n >= 1, "alpha", problem.alpha, f"large enough for round(alpha d) >= 1 at d = {d}")
    require(is_real(tolerance) and 0 < tolerance < 1, "tolerance", tolerance, "a number in (0, 1)")
    require(is_integer(max_iter) and 1 <= max_iter < 2**31, "max_iter", max_iter, "an integer in [1, 2**31)")
    check_seeds(seeds)
    rows = []
    for seed in seeds:
        X, y = draw_measurements(problem, seed)
        theta = _minimise(problem, X, y, tolerance, max_iter)
        violation = optimality_violation(theta, X, y, problem.lam, problem.nonnegative)
        rows.append({
            "theta": theta,
            "train_loss": ((y - X @ theta) ** 2).sum() / d,
            "penalty": problem.lam * np.abs(theta).sum() / d,
            "excess": ((theta - theta_star) ** 2).mean(),
            "m": (theta * theta_star).mean(),
            "q": (theta**2).mean(),
            "active": (theta != 0).mean(),
            "violation": violation,
            "converged": violation <= tolerance,
        })  # fmt: skip
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return TrainedLasso(problem=problem, n=n, seeds=np.array(seeds), **columns)


def draw_measurements(problem, seed):
    r"""Draw measurements and noisy labels of the target.

    Parameters
    ----------
    problem : DiagonalModel
    seed : int
        >= 0.

    Returns
    -------
    tuple of arrays
        X (n, d), with entries of variance 1/d, and :math:`y=X\theta_*+\sqrt\Delta\,\xi` (n,).
    """
    theta_star = problem.target.spectrum
    d = len(theta_star)
    n = round(problem.alpha * d)
    numbers = generator(seed, "train").standard_normal((n, d + 1))
    X = numbers[:, :d] / d**0.5
    return X, X @ theta_star + problem.Delta**0.5 * numbers[:, d]


def optimality_violation(theta, X, y, lam, nonnegative=False):
    r"""How far a vector is from the minimum, by its conditions.

    With :math:`c=2X^\top(y-X\theta)`, the minimum has :math:`c_i=\lambda\,\mathrm{sign}(\theta_i)` where
    :math:`\theta_i\neq0` and :math:`|c_i|\le\lambda` elsewhere (:math:`c_i\le\lambda` under theta >= 0).

    Parameters
    ----------
    theta : array (d,)
    X : array (n, d)
    y : array (n,)
    lam : float
        > 0.
    nonnegative : bool

    Returns
    -------
    float
        The largest violation, divided by lam.

    Examples
    --------
    One measurement y = 1 of one entry: theta = 1 - lam/2.

    >>> one = np.ones((1, 1))
    >>> float(optimality_violation(np.array([0.9]), one, np.ones(1), 0.2))
    0.0
    """
    require(is_real(lam) and lam > 0, "lam", lam, "a finite number > 0")
    require(not nonnegative or (theta >= 0).all(), "theta", theta, "numbers >= 0 where nonnegative")
    c = 2 * X.T @ (y - X @ theta) / lam
    elsewhere = np.maximum((c if nonnegative else np.abs(c)) - 1, 0)
    return float(np.where(theta != 0, np.abs(c - np.sign(theta)), elsewhere).max().round(12))


def _minimise(problem, X, y, tolerance, max_iter):
    """Coordinate descent, from where it stopped to a ten times smaller duality gap until the conditions hold."""
    model = Lasso(
        alpha=problem.lam / (2 * len(y)),
        fit_intercept=False,
        positive=problem.nonnegative,
        precompute=X.shape[0] > X.shape[1],
        warm_start=True,
        max_iter=max_iter,
    )
    for gap in 10.0 ** -np.arange(4, 15):
        model.set_params(tol=gap)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the violation says it
            theta = model.fit(X, y).coef_.copy()
        if optimality_violation(theta, X, y, problem.lam, problem.nonnegative) <= tolerance:
            break
    return theta
