r"""Spectral laws: where the eigenvalues of a large symmetric matrix lie.

A law enters the theory through its resolvent, off the support,

.. math:: G(w) = \int \frac{\mu(ds)}{w-s},

so this is what every law gives, with its derivative and its integral, the logarithmic potential. A law of
eigenvalues that are not negative can be the target of a :class:`~attn_lib.problems.SingleHead`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from attn_lib._checks import as_python_numbers, check_integer, check_number, nested_floats

__all__ = ["FiniteRank", "MarchenkoPastur", "PowerLaw", "Semicircle", "SpectralLaw"]


@runtime_checkable
class SpectralLaw(Protocol):
    """What a free convolution asks of a law.

    Attributes
    ----------
    mean, second_moment : float
        Of an eigenvalue.
    lower, upper : float
        The smallest interval that holds all of the law.
    rank : float
        Fraction of eigenvalues that are not zero.
    support
        Array, shape (n, 3): intervals that hold the law, ascending and disjoint, one a row: lower end, upper end, mass.
        An atom has equal ends.
    """

    mean: float
    second_moment: float
    lower: float
    upper: float
    rank: float
    support: np.ndarray

    def log_potential(self, w):
        """E log(w - s), the integral of G, in the upper half plane and at real w above the law."""

    def resolvent(self, w):
        """G(w), analytic off the support; array of complex w to an array of the same shape."""

    def resolvent_derivative(self, w):
        """G'(w) = - E 1/(w - s)^2."""


@dataclass(frozen=True, kw_only=True)
class Semicircle:
    r"""The semicircle law, that of a GOE matrix Z with :math:`\mathrm{tr}\,Z^2` = variance.

    .. math:: \rho(x) = \frac{\sqrt{4v-x^2}}{2\pi v}

    Parameters
    ----------
    variance : float
        v > 0; the radius is 2 sqrt(v).

    Examples
    --------
    >>> Semicircle(variance=1.0).upper
    2.0
    """

    variance: float

    def __post_init__(self):
        check_number("variance", self.variance, "a finite number > 0", lambda v: v > 0)
        as_python_numbers(self, "variance")

    mean = property(lambda self: 0.0, doc="0.")
    second_moment = property(lambda self: self.variance, doc="The variance.")
    lower = property(lambda self: -2 * self.variance**0.5, doc="Lower edge.")
    upper = property(lambda self: 2 * self.variance**0.5, doc="Upper edge.")
    rank = property(lambda self: 1.0, doc="Always 1, no eigenvalue is zero.")
    support = property(lambda self: np.array([[self.lower, self.upper, 1.0]]), doc="One interval.")

    def log_potential(self, w):
        """E log(w - s), from w = 1/G + v G."""
        G = self.resolvent(w)
        return self.variance * G**2 / 2 - np.log(G)

    def resolvent(self, w):
        """G(w)."""
        return 2 / (w + _root(w, self.lower, self.upper))

    def resolvent_derivative(self, w):
        """G'(w)."""
        return -(self.resolvent(w) ** 2) * (1 + w / _root(w, self.lower, self.upper)) / 2


@dataclass(frozen=True, kw_only=True)
class MarchenkoPastur:
    r"""The law of :math:`S_0 = W_0W_0^\top/\sqrt{p_0 d}`, the entries of :math:`W_0` (d x p0) standard Gaussian.

    .. math::

        G(w) = \frac{\sqrt{\kappa_0}}{2w}\Big(w + \tfrac{1}{\sqrt{\kappa_0}} - \sqrt{\kappa_0}
        - \sqrt{w-\ell_-}\sqrt{w-\ell_+}\Big), \qquad
        \ell_\pm = \sqrt{\kappa_0} + \tfrac{1}{\sqrt{\kappa_0}} \pm 2,

    with an atom of mass 1 - kappa0 at 0 when kappa0 < 1.

    Parameters
    ----------
    kappa0 : float
        p0/d > 0, the rank of the target divided by d.

    Source
    ------
    arXiv 2509.24914, the Marchenko-Pastur target.

    Examples
    --------
    >>> MarchenkoPastur(kappa0=0.25).second_moment, MarchenkoPastur(kappa0=0.25).mean
    (1.25, 0.5)
    """

    kappa0: float

    def __post_init__(self):
        check_number("kappa0", self.kappa0, "a finite number > 0", lambda v: v > 0)
        as_python_numbers(self, "kappa0")

    mean = property(lambda self: self.kappa0**0.5, doc="sqrt(kappa0).")
    second_moment = property(lambda self: 1 + self.kappa0, doc="1 + kappa0.")
    rank = property(lambda self: min(self.kappa0, 1.0), doc="kappa0, at most 1.")
    lower = property(lambda self: 0.0 if self.kappa0 < 1 else self.bulk[0], doc="Smallest eigenvalue.")
    upper = property(lambda self: self.bulk[1], doc="Upper edge.")

    @property
    def bulk(self):
        """Edges of the continuous part."""
        root = self.kappa0**0.5
        return (1 - root) ** 2 / root, (1 + root) ** 2 / root

    @property
    def support(self):
        """The atom at 0, if any, and the bulk."""
        intervals = [[*self.bulk, self.rank]]
        return np.array([[0.0, 0.0, 1 - self.kappa0], *intervals] if self.kappa0 < 1 else intervals)

    def log_potential(self, w):
        """E log(w - s), from w = 1/G + sqrt(k0)/(1 - G/sqrt(k0))."""
        G = self.resolvent(w)
        return w * G - 1 - np.log(G) + self.kappa0 * np.log(1 - G / self.kappa0**0.5)

    def resolvent(self, w):
        """G(w); of two equal forms the one without cancellation."""
        root = self.kappa0**0.5
        A, R = w + 1 / root - root, _root(w, *self.bulk)
        return np.where((A * np.conj(R)).real >= 0, 2 / (A + R), root * (A - R) / (2 * w))

    def resolvent_derivative(self, w):
        """G'(w)."""
        lower, upper = self.bulk
        return -(self.resolvent(w) ** 2) * (1 + (w - (lower + upper) / 2) / _root(w, lower, upper)) / 2


class _FiniteList:
    """A law that is a list of d eigenvalues of weight 1/d each, ``spectrum``."""

    mean = property(lambda self: float(self.spectrum.mean()), doc="Mean of the list.")
    second_moment = property(lambda self: float((self.spectrum**2).mean()), doc="Mean square of the list.")
    rank = property(lambda self: float((self.spectrum > 0).mean()), doc="Fraction of the list that is not zero.")
    lower = property(lambda self: float(self.spectrum.min()), doc="Smallest eigenvalue.")
    upper = property(lambda self: float(self.spectrum.max()), doc="Largest eigenvalue.")

    @cached_property
    def atoms(self):
        """Different eigenvalues, ascending, and the fraction of the list that each makes up."""
        values, counts = np.unique(self.spectrum, return_counts=True)
        return values, counts / len(self.spectrum)

    @property
    def support(self):
        """One atom for each different eigenvalue."""
        values, weights = self.atoms
        return np.column_stack([values, values, weights])

    def log_potential(self, w):
        """E log(w - s)."""
        values, weights = self.atoms
        return np.log(np.asarray(w, dtype=complex)[..., None] - values) @ weights

    def resolvent(self, w):
        """G(w)."""
        values, weights = self.atoms
        return (1 / (np.asarray(w)[..., None] - values)) @ weights

    def resolvent_derivative(self, w):
        """G'(w)."""
        values, weights = self.atoms
        return -((np.asarray(w)[..., None] - values) ** -2) @ weights


@dataclass(frozen=True, kw_only=True)
class PowerLaw(_FiniteList):
    r"""A target whose i-th eigenvalue is :math:`s_i = \sqrt d\, i^{-\gamma}`, i = 1..d.

    Parameters
    ----------
    gamma : float
        > 1/2, so that tr S0^2 tends to zeta(2 gamma).
    d : int
        Number of eigenvalues, >= 1.

    Source
    ------
    arXiv 2509.24914, targets with power-law spectra.

    Examples
    --------
    >>> PowerLaw(gamma=1.0, d=400).upper
    20.0
    """

    gamma: float
    d: int

    def __post_init__(self):
        check_number("gamma", self.gamma, "a finite number > 1/2", lambda v: v > 0.5)
        check_integer("d", self.d, 1)
        as_python_numbers(self, "gamma", d=int)

    @cached_property
    def spectrum(self):
        """The d eigenvalues, descending."""
        return self.d**0.5 * np.arange(1, self.d + 1, dtype=float) ** -self.gamma


@dataclass(frozen=True, kw_only=True)
class FiniteRank(_FiniteList):
    """A target with the given eigenvalues, the remaining ones of d zero.

    Parameters
    ----------
    eigenvalues : sequence of floats
        At least one, >= 0.
    d : int, optional
        Number of all eigenvalues; by default as many as are given. Only fractions count: in the limit of the theory
        each eigenvalue stands for a fraction 1/d of them.

    Examples
    --------
    >>> FiniteRank(eigenvalues=[3.0, 1.0], d=100).rank
    0.02
    """

    eigenvalues: tuple
    d: int = None

    def __post_init__(self):
        given = nested_floats(
            "eigenvalues",
            self.eigenvalues,
            "a sequence of numbers >= 0 and up to 1e100, at least one",
            lambda s: s.ndim == 1 and s.size and (s >= 0).all() and (s <= 1e100).all(),
        )
        object.__setattr__(self, "eigenvalues", given)
        if self.d is None:
            object.__setattr__(self, "d", len(given))
        check_integer("d", self.d, len(given))
        as_python_numbers(self, d=int)

    @cached_property
    def spectrum(self):
        """All d eigenvalues, descending."""
        return np.sort(np.pad(self.eigenvalues, (0, self.d - len(self.eigenvalues))))[::-1]


def _root(w, lower, upper):
    """The square root of (w - lower)(w - upper) that is analytic off the interval and w at infinity."""
    w = np.asarray(w, dtype=complex)
    return np.sqrt(w - lower) * np.sqrt(w - upper)
