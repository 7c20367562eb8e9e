"""Drawing the data of Part I: the target Q*, tokens and the mixing matrices of their targets.

A seed and the name of a stream fix all random numbers. The same seed therefore gives the same Q*, the same
training tokens and the same fresh samples whatever is trained on them, and at a larger alpha the training set
only grows.
"""

from typing import NamedTuple

import numpy as np

from attn_lib.simulation._checks import is_integer, require
from attn_lib.simulation.attention import teacher_attention

__all__ = ["Sample", "draw_sample", "draw_target", "generator"]

STREAMS = ("target", "train", "test", "start")


class Sample(NamedTuple):
    """Tokens x (n, 2, d) and the mixing matrices T (n, 2, 2) of their targets y = T x."""

    x: np.ndarray
    T: np.ndarray


def generator(seed, stream):
    """Random generator of one stream of a seed.

    Parameters
    ----------
    seed : int
        >= 0.
    stream : str
        "target", "train", "test" or "start".

    Returns
    -------
    numpy.random.Generator
        A new one, at the beginning of the stream.

    Raises
    ------
    ValueError
        seed is not an integer >= 0, or the stream is unknown.
    """
    require(is_integer(seed) and seed >= 0, "seed", seed, "an integer >= 0")
    require(stream in STREAMS, "stream", stream, f"one of {STREAMS}")
    return np.random.default_rng([STREAMS.index(stream), int(seed)])


def draw_target(d, seed):
    """Draw the target Q* ~ N(0, I_d) of a seed.

    Parameters
    ----------
    d : int
        >= 2.
    seed : int
        >= 0.

    Returns
    -------
    array (d,)
    """
    require(is_integer(d) and d >= 2, "d", d, "an integer >= 2")
    return generator(seed, "target").standard_normal(d)


def draw_sample(problem, Q_star, *, n, seed, stream="train"):
    r"""Draw n samples: tokens :math:`x_\ell\sim N(0,\sigma^2 I_d)` and the matrices T of :math:`y = T x`.

    Parameters
    ----------
    problem : PositionalSemantic
    Q_star : array (d,)
        Target, as drawn by :func:`draw_target`.
    n : int
        Number of samples, >= 1; the first samples of a larger n are those of a smaller one.
    seed : int
        >= 0.
    stream : str
        "train", or "test" for fresh samples, independent of the training set.

    Returns
    -------
    Sample
        x (n, 2, d) and T (n, 2, 2).

    Examples
    --------
    >>> from attn_lib.problems import PositionalSemantic
    >>> problem = PositionalSemantic(alpha=1.5, omega=0.3)
    >>> sample = draw_sample(problem, draw_target(100, seed=0), n=5, seed=0)
    >>> sample.x.shape, sample.T.shape
    ((5, 2, 100), (5, 2, 2))
    """
    require(is_integer(n) and n >= 1, "n", n, "an integer >= 1")
    x = generator(seed, stream).standard_normal((n, 2, len(Q_star)))
    x *= problem.sigma
    return Sample(x, teacher_attention(problem, x, Q_star))
