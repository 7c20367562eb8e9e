r"""Long lists of eigenvalues replaced by short ones that a semicircle of given width cannot tell apart.

A free convolution with a semicircle of standard deviation delta evaluates the resolvent G only where

.. math:: N(w) = \int\frac{\mu(ds)}{|w-s|^2}\le\frac1{\delta^2}

(:mod:`attn_lib.spectra.free_convolution`). Such w keep away from crowded parts of the law: if a mass M lies within R
of c, and w at a distance D from c, then :math:`M/(D+R)^2\le N\le1/\delta^2`, so

.. math:: D \ge D_c = \max_R\big[\delta\sqrt{M_c(R)}-R\big].

In a bin of half width :math:`h\le\theta D_c` around c the function :math:`1/(w-s)` is a polynomial in s of degree 2k-1
but for a remainder of at most :math:`\theta^{2k}/((1-\theta)D_c)`, and the Gauss rule of the bin's eigenvalues, k atoms
of positive weight, integrates the polynomial exactly.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from attn_lib._checks import as_python_numbers, check_number
from attn_lib.spectra.laws import SpectralLaw, _FiniteList

__all__ = ["Binned", "shortened"]

_THETA, _ATOMS = 0.12, 8  # half width of a bin in units of D_c, and k
_RADII = 2.0 ** -np.arange(0.5, 12, 0.5)  # R in units of delta
_SHORT = 200  # a list that is not worth while


@dataclass(frozen=True, kw_only=True)
class Binned(_FiniteList):
    r"""A finite list of eigenvalues, binned for use with semicircles of standard deviation delta or more.

    Parameters
    ----------
    law : PowerLaw or FiniteRank
        Or any other law with ``atoms``.
    delta : float
        > 0.

    Accuracy
    --------
    Moments up to the 15th are those of the law, by bins. The resolvent: see ``error_bound``. Its derivative, relative
    to :math:`1/\delta^2`, loses another factor of about 2k + 1.

    Examples
    --------
    >>> from attn_lib.spectra.laws import PowerLaw
    >>> law = PowerLaw(gamma=1.0, d=4000)
    >>> binned = Binned(law=law, delta=2.0)
    >>> len(binned.atoms[0]) < 250, binned.error_bound < 1e-9
    (True, True)
    """

    law: SpectralLaw
    delta: float

    def __post_init__(self):
        if not hasattr(self.law, "atoms"):
            raise ValueError(f"law = {self.law!r}: must be a finite list of eigenvalues, with ``atoms``")
        check_number("delta", self.delta, "a finite number > 0", lambda v: v > 0)
        as_python_numbers(self, "delta")

    mean = property(lambda self: self.law.mean, doc="Of the law.")
    second_moment = property(lambda self: self.law.second_moment, doc="Of the law.")
    rank = property(lambda self: self.law.rank, doc="Of the law.")
    lower = property(lambda self: self.law.lower, doc="Of the law.")
    upper = property(lambda self: self.law.upper, doc="Of the law.")

    @cached_property
    def atoms(self):
        """Values, ascending, and weights of the short list."""
        values, weights = self.law.atoms
        rules = [
            (values[i:j], weights[i:j]) if j - i <= _ATOMS else _gauss(values[i:j], weights[i:j]) for i, j in self._bins
        ]
        return tuple(np.concatenate(parts) for parts in zip(*rules, strict=True))

    @property
    def error_bound(self):
        r"""Of the resolvent where it is used, relative to its largest possible value :math:`1/\delta`.

        .. math:: \delta\sum_{\rm bins}2M\,\frac{\theta^{2k}}{(1-\theta)D_c}

        with :math:`D/(1+\theta)` for :math:`D_c`, D being the least of the bin's eigenvalues: D changes by no more
        than the distance moved.
        """
        weights = self.law.atoms[1]
        terms = [weights[i:j].sum() * (1 + _THETA) / self._distance[i:j].min() for i, j in self._bins if j - i > _ATOMS]
        return float(self.delta * 2 * _THETA ** (2 * _ATOMS) / (1 - _THETA) * sum(terms))

    @cached_property
    def _distance(self):
        """A lower bound of the distance from w to each eigenvalue."""
        values, weights = self.law.atoms
        below = np.concatenate([[0.0], np.cumsum(weights)])
        best = np.zeros_like(values)
        for R in self.delta * _RADII:
            ends = (np.searchsorted(values, values + R, "right"), np.searchsorted(values, values - R, "left"))
            best = np.maximum(best, self.delta * (below[ends[0]] - below[ends[1]]) ** 0.5 - R)
        return best

    @cached_property
    def _bins(self):
        """First and last of each bin, from the smallest eigenvalue upwards.

        The bound of the distance from the centre is smaller by h than that from the smallest eigenvalue, or less.
        """
        values = self.law.atoms[0]
        last = np.searchsorted(values, values + 2 * _THETA / (1 + _THETA) * self._distance, "right")
        cuts = [0]
        while cuts[-1] < len(values):
            cuts.append(max(int(last[cuts[-1]]), cuts[-1] + 1))
        return list(zip(cuts[:-1], cuts[1:], strict=True))


@lru_cache(maxsize=64)
def _binned(law, step):
    return Binned(law=law, delta=2.0 ** (step / 2))


def shortened(law, delta):
    """The law as a semicircle of standard deviation delta sees it: binned if it is a long list.

    Parameters
    ----------
    law : SpectralLaw
    delta : float
        > 0.

    Returns
    -------
    SpectralLaw
        The law itself if it is no list, or one of at most 200 eigenvalues; else binned for the largest power of
        sqrt(2) up to delta, so that neighbouring delta share the bins.

    Examples
    --------
    >>> from attn_lib.spectra.laws import PowerLaw
    >>> shortened(PowerLaw(gamma=1.0, d=100), 0.5)
    PowerLaw(gamma=1.0, d=100)
    """
    if not hasattr(law, "atoms") or len(law.atoms[0]) <= _SHORT:
        return law
    check_number("delta", delta, "a finite number > 0", lambda v: v > 0)
    return _binned(law, int(np.floor(2 * np.log2(delta))))


def _gauss(values, weights):
    """The Gauss rule with k atoms of a discrete measure: Lanczos with full orthogonalisation."""
    centre, half = (values[0] + values[-1]) / 2, (values[-1] - values[0]) / 2
    x, basis, off = (values - centre) / half, [np.sqrt(weights)], []
    matrix = np.zeros((_ATOMS, _ATOMS))
    basis[0] = basis[0] / np.linalg.norm(basis[0])
    for k in range(_ATOMS):
        image = x * basis[k]
        matrix[k, k] = image @ basis[k]
        for _ in range(2):
            for vector in basis:
                image = image - (image @ vector) * vector
        off.append(np.linalg.norm(image))
        basis.append(image / off[-1])
    matrix += np.diag(off[:-1], 1) + np.diag(off[:-1], -1)
    nodes, vectors = np.linalg.eigh(matrix)
    return centre + half * nodes, weights.sum() * vectors[0] ** 2
