r"""Tokens that are not isotropic Gaussian vectors, for studies of what the theory's assumption is worth.

A law turns a standard Gaussian vector g into a token x, so that a seed draws the same numbers under all laws. All laws
have mean zero, and are scaled so that :math:`E|x|^2 = d`. Those with independent components differ, to leading order,
by two numbers only: the variances of the components, and the excess kurtosis, that is how much the length of a token
fluctuates, :math:`\mathrm{Var}\,|x|^2 = (2+\kappa_4)\,d` at unit variances.

A law is any object with the methods ``draw(g, seed)`` and ``variances(d)`` of :class:`Gaussian`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtr, ndtri, stdtrit

from attn_lib.simulation._checks import is_integer, is_real, require

__all__ = [
    "Correlated",
    "Gaussian",
    "Rademacher",
    "Sphere",
    "StudentT",
    "Ternary",
    "Vocabulary",
    "VocabularyGaussian",
    "embeddings",
]


@dataclass(frozen=True)
class Gaussian:
    """Standard Gaussian components: the law of the theory."""

    def draw(self, g, seed):
        """Tokens made of standard Gaussian vectors.

        Parameters
        ----------
        g : tensor (..., d)
        seed : int
            Of the data set, for laws that draw something once for all tokens.

        Returns
        -------
        tensor (..., d)
        """
        return g

    def variances(self, d):
        """Variance of every component, by which pre-activations are centred.

        Parameters
        ----------
        d : int

        Returns
        -------
        tensor (d,)
        """
        return torch.ones(d, dtype=torch.float64)


@dataclass(frozen=True)
class Rademacher(Gaussian):
    """Independent signs: excess kurtosis -2, tokens of one length."""

    def draw(self, g, seed):
        """As :meth:`Gaussian.draw`."""
        return torch.where(g >= 0, 1.0, -1.0).to(g.dtype)


@dataclass(frozen=True)
class Sphere(Gaussian):
    """Uniform directions, all tokens of length sqrt(d): what a normalisation layer makes of Gaussian tokens."""

    def draw(self, g, seed):
        """As :meth:`Gaussian.draw`."""
        return g * (g.shape[-1] ** 0.5 / g.norm(dim=-1, keepdim=True))


@dataclass(frozen=True)
class Ternary(Gaussian):
    r"""Sparse tokens: components are 0 or :math:`\pm f^{-1/2}`, a fraction f of them not zero; kurtosis 1/f - 3.

    Parameters
    ----------
    fraction : float
        f in (0, 1].
    """

    fraction: float

    def __post_init__(self):
        require(is_real(self.fraction) and 0 < self.fraction <= 1, "fraction", self.fraction, "a number in (0, 1]")

    def draw(self, g, seed):
        """As :meth:`Gaussian.draw`."""
        return torch.sign(g) * (g.abs() >= -ndtri(self.fraction / 2)) / self.fraction**0.5


@dataclass(frozen=True)
class StudentT(Gaussian):
    r"""Heavy-tailed components: Student's t with nu degrees of freedom, at unit variance; kurtosis 6/(nu - 4).

    Parameters
    ----------
    nu : float
        > 2; the kurtosis is infinite up to nu = 4.
    """

    nu: float

    def __post_init__(self):
        require(is_real(self.nu) and self.nu > 2, "nu", self.nu, "a finite number > 2")

    def draw(self, g, seed):
        """As :meth:`Gaussian.draw`."""
        lower = stdtrit(self.nu, ndtr(-g.abs().cpu().numpy()))  # the lower tail, where no digits are lost
        return -torch.sign(g) * torch.as_tensor(lower, device=g.device) * (1 - 2 / self.nu) ** 0.5


@dataclass(frozen=True)
class Vocabulary(Gaussian):
    """Every token is one of V = ratio d words, at random; their embeddings are standard Gaussian vectors.

    Parameters
    ----------
    ratio : float
        V/d > 0.
    """

    ratio: float

    def __post_init__(self):
        require(is_real(self.ratio) and self.ratio > 0, "ratio", self.ratio, "a finite number > 0")

    def draw(self, g, seed):
        """As :meth:`Gaussian.draw`; the first component of g chooses the word."""
        words = self.words(g.shape[-1], seed)
        index = (torch.special.ndtr(g[..., 0]) * len(words)).long().clamp(max=len(words) - 1)
        return words.to(g.device)[index]

    def words(self, d, seed):
        """The embeddings, V at least 1.

        Parameters
        ----------
        d, seed : int

        Returns
        -------
        tensor (V, d)
        """
        return embeddings(d, max(1, round(self.ratio * d)), seed)


@dataclass(frozen=True)
class VocabularyGaussian(Vocabulary):
    """Gaussian tokens with the covariance of a vocabulary, the mean of e e^T over its embeddings e.

    Parameters
    ----------
    ratio : float
        V/d > 0.
    """

    def draw(self, g, seed):
        """As :meth:`Gaussian.draw`."""
        words = self.words(g.shape[-1], seed)
        values, vectors = torch.linalg.eigh(words.mT @ words / len(words))
        return g @ (vectors * values.clamp(min=0).sqrt()).to(g.device) @ vectors.mT.to(g.device)


@dataclass(frozen=True)
class Correlated(Gaussian):
    r"""Gaussian components of unequal variances :math:`c_i\propto i^{-a}`, of mean 1.

    The target has no preferred basis, so that this stands for any covariance with these eigenvalues.

    Parameters
    ----------
    exponent : float
        a >= 0.
    """

    exponent: float

    def __post_init__(self):
        require(is_real(self.exponent) and self.exponent >= 0, "exponent", self.exponent, "a finite number >= 0")

    def draw(self, g, seed):
        """As :meth:`Gaussian.draw`."""
        return g * self.variances(g.shape[-1]).to(g.device).sqrt()

    def variances(self, d):
        """As :meth:`Gaussian.variances`."""
        c = torch.arange(1, d + 1, dtype=torch.float64) ** -self.exponent
        return c / c.mean()


def embeddings(d, n_words, seed):
    """Embeddings of the words of a vocabulary: independent standard Gaussian vectors.

    Parameters
    ----------
    d : int
        Dimension, >= 1.
    n_words : int
        >= 1.
    seed : int
        >= 0.

    Returns
    -------
    tensor (n_words, d)

    Examples
    --------
    >>> embeddings(3, 5, seed=0).shape
    torch.Size([5, 3])
    """
    for name, value, low in (("d", d, 1), ("n_words", n_words, 1), ("seed", seed, 0)):
        require(is_integer(value) and value >= low, name, value, f"an integer >= {low}")
    # a stream of its own: those of attn_lib.simulation.sampling.generator are numbered from 0
    return torch.as_tensor(np.random.default_rng([1000, int(seed)]).standard_normal((n_words, d)))
