r"""Drawing the data of Part II: the target S0, tokens, and noisy attention matrices as labels.

A seed fixes all random numbers (:func:`~attn_lib.simulation.sampling.generator`): the same seed gives the same target,
training set, fresh samples and starts whatever is trained on them, and at a larger alpha the training set only grows.
"""

from typing import NamedTuple

import numpy as np
import torch

from attn_lib.problems import MarchenkoPastur
from attn_lib.simulation._checks import is_integer, require
from attn_lib.simulation._hardware import BLOCK, stacked
from attn_lib.simulation.sampling import generator
from attn_lib.simulation.sensing import TokenMeasurement, pairs

__all__ = [
    "LabelledTokens",
    "draw_matrix",
    "draw_start",
    "labelled_tokens",
    "labels",
    "stacked_tokens",
    "uniform_rotation",
]


class LabelledTokens(NamedTuple):
    """Tokens x (n, T, d) and attention matrices Y (n, T, T) of the target."""

    x: torch.Tensor
    Y: torch.Tensor


def draw_matrix(problem, d, seed):
    r"""Draw the target S0 of a seed.

    A Marchenko-Pastur target is :math:`W_0W_0^\top/\sqrt{p_0d}` with a standard Gaussian W_0 (d x p0),
    p0 = round(kappa0 d); its eigenvalues fluctuate with the seed. Any other is :math:`O\,\mathrm{diag}(s)\,O^\top` with
    a uniform rotation O and the eigenvalues s of the list, each of them d/len(s) times.

    Parameters
    ----------
    problem : SingleHead
    d : int
        >= 2; for a list of eigenvalues a multiple of its length, and large enough for p0 >= 1 otherwise.
    seed : int
        >= 0.

    Returns
    -------
    array (d, d)

    Raises
    ------
    ValueError
        Naming the argument, its value and what is allowed.

    Examples
    --------
    >>> from attn_lib.problems import FiniteRank, SingleHead
    >>> target = FiniteRank(eigenvalues=[3.0, 0.0])
    >>> problem = SingleHead(alpha=1.0, lam=0.1, Delta=0.0, kappa=1.0, target=target)
    >>> np.linalg.eigvalsh(draw_matrix(problem, 4, seed=0)).round(12) + 0.0
    array([0., 0., 3., 3.])
    """
    require(is_integer(d) and d >= 2, "d", d, "an integer >= 2")
    rng, target = generator(seed, "target"), problem.target
    if isinstance(target, MarchenkoPastur):
        p0 = round(target.kappa0 * d)
        require(p0 >= 1, "kappa0", target.kappa0, f"large enough for round(kappa0 d) >= 1 at d = {d}")
        W0 = rng.standard_normal((d, p0))
        return W0 @ W0.T / (p0 * d) ** 0.5
    require(d % target.d == 0, "d", d, f"a multiple of the number of eigenvalues of the target, {target.d}")
    rotation = uniform_rotation(rng, d)
    return rotation * np.repeat(target.spectrum, d // target.d) @ rotation.T


def uniform_rotation(rng, d):
    """Draw a uniformly distributed orthogonal matrix.

    Parameters
    ----------
    rng : numpy.random.Generator
    d : int

    Returns
    -------
    array (d, d)
    """
    rotation, R = np.linalg.qr(rng.standard_normal((d, d)))
    return rotation * np.sign(np.diag(R))


def draw_start(d, p, seed, start):
    """Draw the standard Gaussian W (d x p) of a seed from which a training starts.

    Parameters
    ----------
    d, p : int
    seed : int
        >= 0.
    start : int
        >= 0, numbers the different starts of a seed.

    Returns
    -------
    array (d, p)
    """
    rng = generator(seed, "start")
    for _ in range(start + 1):
        W = rng.standard_normal((d, p))
    return W


def labels(problem, z, numbers):
    r"""Attention matrices of the target from its fields, :math:`Y = \mathrm{softmax}(\beta_0(z + \xi))`.

    Parameters
    ----------
    problem : SingleHead
        Of which Delta, n_tokens and beta0 are used.
    z : tensor (..., pair)
        Fields of the target without noise.
    numbers : tensor (..., pair)
        Standard Gaussian numbers that the noise is made of.

    Returns
    -------
    tensor (..., T, T)
    """
    T = problem.n_tokens
    a, b = pairs(T, z.device)
    z = z + torch.where(a == b, problem.Delta, problem.Delta / 2).double().sqrt() * numbers
    field = z.new_empty(*z.shape[:-1], T, T)
    field[..., a, b] = field[..., b, a] = z
    return torch.softmax(problem.beta0 * field, dim=-1)


def labelled_tokens(problem, S0, *, n, seed, stream="train", noisy=True, device="cpu", dtype=torch.float64):
    r"""Draw samples: tokens :math:`x_a\sim N(0, I_d)` and :math:`Y = \mathrm{softmax}(\beta_0(z(S_0)+\xi))`.

    The noise is symmetric, its variance Delta on the diagonal and Delta/2 off it. Samples are drawn and labelled in
    float64, some at a time, so that nothing but the result is as large as it.

    Parameters
    ----------
    problem : SingleHead
    S0 : array (d, d)
        Target, as drawn by :func:`draw_matrix`.
    n : int
        Number of samples, >= 1; the first samples of a larger n are those of a smaller one.
    seed : int
        >= 0.
    stream : str
        "train", or "test" for fresh samples.
    noisy : bool
        Whether labels carry the noise; the tokens are the same without.
    device : str
        Where the result goes.
    dtype : torch.dtype
        Of the result.

    Returns
    -------
    LabelledTokens

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> target = MarchenkoPastur(kappa0=0.5)
    >>> problem = SingleHead(alpha=1.0, lam=0.1, Delta=0.5, kappa=1.0, target=target)
    >>> x, Y = labelled_tokens(problem, draw_matrix(problem, 20, seed=0), n=5, seed=0)
    >>> x.shape, Y.sum(dim=-1)[0]
    (torch.Size([5, 2, 20]), tensor([1., 1.], dtype=torch.float64))
    """
    T, d = problem.n_tokens, len(S0)
    rng, S0 = generator(seed, stream), torch.as_tensor(S0, device=device)[None]
    width = T * d + T * (T + 1) // 2
    x, Y = (torch.empty(n, T, k, device=device, dtype=dtype) for k in (d, T))
    for rows in torch.arange(n).split(max(1, BLOCK // width)):
        numbers = torch.as_tensor(rng.standard_normal((len(rows), width)), device=device)
        tokens, noise = numbers[:, : T * d].unflatten(1, (T, d)), numbers[:, T * d :]
        x[rows[0] : rows[-1] + 1] = tokens
        Y[rows[0] : rows[-1] + 1] = labels(problem, TokenMeasurement(tokens[None]).measure(S0)[0], noisy * noise)
    return LabelledTokens(x, Y)


def stacked_tokens(problem, targets, *, n, seeds, **options):
    """Samples of several data sets: tokens (set, n, T, d) and attention matrices (set, n, T, T).

    Parameters
    ----------
    problem : SingleHead
    targets : sequence of arrays (d, d)
    n : int
        Samples of each data set.
    seeds : sequence of int
        One for each target.
    options
        Of :func:`labelled_tokens`.

    Returns
    -------
    LabelledTokens
    """
    data = [labelled_tokens(problem, S0, n=n, seed=seed, **options) for S0, seed in zip(targets, seeds, strict=True)]
    return LabelledTokens(*stacked(data))
