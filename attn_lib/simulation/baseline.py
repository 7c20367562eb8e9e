r"""The purely positional linear layer of Part I at finite d, by least squares.

.. math:: f_W(x) = W x, \qquad \min_W \sum_{\mu=1}^n \frac{|y^\mu - W x^\mu|^2}{2d}

W is a 2 x 2 matrix that mixes the raw tokens of every sample in the same way: it sees which position a token has, and
nothing of its content. All there is to compute are sums over tokens that are drawn on the CPU; it stays there.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation._checks import attention_size, check_integers, check_seeds
from attn_lib.simulation.attention import GramMatrices, gram_matrices, squared_error
from attn_lib.simulation.sampling import draw_sample, draw_target

__all__ = ["TrainedBaseline", "least_squares", "train_linear_baseline"]


def least_squares(sample):
    r"""Closed form of the linear layer on one training set.

    .. math::

        W = \Big(\sum_\mu y^\mu x^{\mu\top}\Big)\Big(\sum_\mu x^\mu x^{\mu\top}\Big)^{-1}
        = \Big(\sum_\mu T^\mu G^\mu\Big)\Big(\sum_\mu G^\mu\Big)^{-1}, \qquad G^\mu = x^\mu x^{\mu\top}/d

    Parameters
    ----------
    sample : Sample

    Returns
    -------
    array (2, 2)

    Source
    ------
    arXiv 2402.03902 trains the same layer by a gradient method, with a ridge penalty of 1e-4 in the authors' code. That
    changes W by about 1e-4/(n sigma^2), which is far below its sampling error.

    Examples
    --------
    One T for all samples is learned exactly:

    >>> from attn_lib.problems import PositionalSemantic
    >>> problem = PositionalSemantic(alpha=1, omega=1, A=((0.9, 0.1), (0.4, 0.6)))
    >>> least_squares(draw_sample(problem, draw_target(20, seed=0), n=3, seed=0)).round(10)
    array([[0.9, 0.1],
           [0.4, 0.6]])
    """
    G = gram_matrices(sample.x).xx
    return np.linalg.solve(G.sum(0), (sample.T @ G).sum(0).T).T  # the sum of G is symmetric


@dataclass(frozen=True, kw_only=True)
class TrainedBaseline:
    r"""Linear layers fitted by :func:`train_linear_baseline`: arrays with one entry per seed.

    Parameters
    ----------
    problem : PositionalSemantic
    d, n, n_test : int
        Dimension of the tokens, training and fresh samples per seed.
    seeds : array (seed,)
    W : array (seed, 2, 2)
    train_loss : array (seed,)
        Minimum of the risk, divided by d like that of the attention layer.
    test_error, test_error_se : array (seed,)
        Mean of :math:`|y - W x|^2/(2d)` over fresh samples, and its standard error at fixed W.
    """

    problem: PositionalSemantic
    d: int
    n: int
    n_test: int
    seeds: np.ndarray
    W: np.ndarray
    train_loss: np.ndarray
    test_error: np.ndarray
    test_error_se: np.ndarray


def train_linear_baseline(problem, *, d, seeds, n_test=2000):
    """Fit the linear layer to the data that :func:`~attn_lib.simulation.erm.train_positional_semantic` trains on.

    A seed gives the same training set and the same fresh samples in both, so that errors can be compared seed by seed.

    Parameters
    ----------
    problem : PositionalSemantic
    d : int
        Dimension of the tokens, >= 2.
    seeds : iterable of int
        Distinct, >= 0.
    n_test : int
        Fresh samples per seed, >= 2.

    Returns
    -------
    TrainedBaseline

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.

    Accuracy
    --------
    Exact up to rounding; no iteration.

    Source
    ------
    arXiv 2402.03902, the linear attention baseline.

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> fitted = train_linear_baseline(PositionalSemantic(alpha=1.5, omega=0.3), d=50, seeds=range(4))
    >>> fitted.W.shape, fitted.test_error.shape
    ((4, 2, 2), (4,))
    """
    seeds = list(seeds) if isinstance(seeds, Iterable) else seeds
    check_seeds(seeds)
    check_integers(2, n_test=n_test)
    n = attention_size(problem, d)
    rows = []
    for seed in seeds:
        Q_star = draw_target(d, seed)
        sample = draw_sample(problem, Q_star, n=n, seed=seed)
        W = least_squares(sample)
        fresh = draw_sample(problem, Q_star, n=n_test, seed=seed, stream="test")
        error = _errors(fresh, W)
        rows.append({
            "W": W,
            "train_loss": _errors(sample, W).sum() / d,
            "test_error": error.mean(),
            "test_error_se": error.std(ddof=1) / n_test**0.5,
        })  # fmt: skip
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return TrainedBaseline(problem=problem, d=d, n=n, n_test=n_test, seeds=np.array(seeds), **columns)


def _errors(sample, W):
    """Half the squared error of each sample, divided by d: the attention matrix is W, and no position is added."""
    G = gram_matrices(sample.x).xx
    return squared_error(sample.T, W, GramMatrices(G, G, G)) / 2
