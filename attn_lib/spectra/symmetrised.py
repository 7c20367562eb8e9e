r"""Singular values as a spectral law: every value with both signs.

The singular values s of a square matrix X are, with both signs, the eigenvalues of

.. math:: \begin{pmatrix}0&X\\X^\top&0\end{pmatrix}.

Where X is a fixed matrix plus one of independent Gaussian entries of variance delta^2/d, so is this one, and its noise
has the semicircle of variance delta^2: free convolution then gives the singular values of the sum.
"""

from dataclasses import dataclass

import numpy as np

from attn_lib.spectra.laws import SpectralLaw

__all__ = ["Symmetrised"]


@dataclass(frozen=True)
class Symmetrised:
    r"""The law of s and -s with probability 1/2 each,

    .. math:: G(w) = \frac{G_0(w) - G_0(-w)}2.

    Parameters
    ----------
    law : SpectralLaw
        Law of s >= 0.

    Raises
    ------
    ValueError
        The law has negative values.

    Examples
    --------
    >>> from attn_lib.spectra.laws import MarchenkoPastur
    >>> Symmetrised(MarchenkoPastur(kappa0=0.5)).support[:, 2].tolist()
    [0.25, 0.5, 0.25]
    """

    law: SpectralLaw

    def __post_init__(self):
        if not isinstance(self.law, SpectralLaw) or self.law.lower < 0:
            raise ValueError(f"law = {self.law!r}: must be a law of attn_lib.spectra.laws without negative values")

    mean = property(lambda self: 0.0, doc="0.")
    second_moment = property(lambda self: self.law.second_moment, doc="That of the law.")
    lower = property(lambda self: -self.law.upper, doc="Smallest value.")
    upper = property(lambda self: self.law.upper, doc="Largest value.")
    rank = property(lambda self: self.law.rank, doc="That of the law.")

    @property
    def support(self):
        """The intervals of the law, mirrored; an atom at zero stays one."""
        intervals = self.law.support
        atom, others = intervals[intervals[:, 1] == 0], intervals[intervals[:, 1] > 0] * [1, 1, 0.5]
        return np.concatenate([others[::-1, [1, 0, 2]] * [-1, -1, 1], atom, others])

    def log_potential(self, w):
        """E log(w - s) over both signs."""
        w = np.asarray(w, dtype=complex)
        mirrored = np.conj(self.law.log_potential(-np.conj(w))) + 1j * np.pi
        return (self.law.log_potential(w) + np.where(w.imag == 0, mirrored.real, mirrored)) / 2

    def resolvent(self, w):
        """G(w)."""
        w = np.asarray(w)
        return (self.law.resolvent(w) - self.law.resolvent(-w)) / 2

    def resolvent_derivative(self, w):
        """G'(w)."""
        w = np.asarray(w)
        return (self.law.resolvent_derivative(w) + self.law.resolvent_derivative(-w)) / 2
