r"""The spectrum of a trained layer: a soft threshold of the target plus noise.

State evolution describes the learned map :math:`S=WW^\top/\sqrt{pd}` as

.. math:: S \simeq \eta\,\mathrm{ReLU}(S_0+\delta Z-\epsilon),

where the function acts on eigenvalues, Z is a GOE matrix with :math:`\mathrm{tr}\,Z^2=1`, and eta, delta, epsilon are
results of the fixed point.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attn_lib._checks import check_number
from attn_lib.spectra.free_convolution import FreeConvolution
from attn_lib.spectra.support import Component

__all__ = ["LearnedSpectrum", "learned_spectrum"]


@dataclass(frozen=True)
class LearnedSpectrum:
    r"""The law of :math:`\eta\,\mathrm{ReLU}(x-\epsilon)`, x an eigenvalue of the target plus noise.

    .. math:: \mathrm{atom}\;\delta_0 + \frac1\eta\,\rho_\delta\Big(\epsilon+\frac y\eta\Big)\,dy \quad (y>0),
              \qquad \mathrm{atom} = \mu_\delta(x\le\epsilon)

    Parameters
    ----------
    noisy : FreeConvolution
        Law of the eigenvalues of :math:`S_0+\delta Z`.
    eta : float
        Scale, > 0.
    epsilon : float
        Threshold, >= 0.

    Source
    ------
    arXiv 2509.24914, the spectrum of the learned map.

    Examples
    --------
    >>> from attn_lib.spectra.laws import MarchenkoPastur
    >>> s = LearnedSpectrum(FreeConvolution(MarchenkoPastur(kappa0=0.5), 0.6), eta=0.9, epsilon=0.1)
    >>> round(s.atom + s.rank, 12)
    1.0
    """

    noisy: FreeConvolution
    eta: float
    epsilon: float

    def __post_init__(self):
        if not isinstance(self.noisy, FreeConvolution):
            raise ValueError(f"noisy = {self.noisy!r}: must be a FreeConvolution")
        check_number("eta", self.eta, "a finite number > 0", lambda v: v > 0)
        check_number("epsilon", self.epsilon, "a finite number >= 0", lambda v: v >= 0)

    @cached_property
    def rank(self):
        """Fraction of eigenvalues above zero, rank(W)/d."""
        return self.noisy.tail(self.epsilon).mass

    @property
    def atom(self):
        """Fraction of eigenvalues that are zero."""
        return 1 - self.rank

    @property
    def components(self):
        """Intervals above zero, ascending; with the atom, their masses sum to 1."""
        found, above = [], self.rank
        for c in reversed([c for c in self.noisy.components if c.upper > self.epsilon]):
            mass = min(c.mass, above)
            above -= mass
            found.insert(0, Component(self._kept(c.lower), self._kept(c.upper), mass, c.sources))
        return tuple(found)

    @property
    def edges(self):
        """Ends of the components, ascending."""
        return np.array([end for component in self.components for end in component[:2]])

    @property
    def outliers(self):
        """Isolated positive eigenvalues of the target that are learned, with position and overlap of eigenvectors."""
        seen = [o for o in self.noisy.outliers if o.position > self.epsilon]
        return tuple(o._replace(position=self._kept(o.position)) for o in seen)

    def density(self, y):
        """Density of the eigenvalues of S at y > 0; zero elsewhere, without the atom.

        Parameters
        ----------
        y : array

        Returns
        -------
        array
        """
        y = np.asarray(y, dtype=float)
        return np.where(y > 0, self.noisy.density(self.epsilon + y / self.eta) / self.eta, 0.0)

    def singular_density(self, sigma):
        r"""Density of the singular values of W divided by :math:`(pd)^{1/4}`, square roots of eigenvalues of S.

        .. math:: 2\sigma\,\rho_S(\sigma^2) \quad (\sigma>0), \text{ normalised to the rank: } d
                  \text{ values are counted, the remaining ones are 0.}

        Parameters
        ----------
        sigma : array

        Returns
        -------
        array
        """
        sigma = np.asarray(sigma, dtype=float)
        return np.where(sigma > 0, 2 * sigma * self.density(sigma**2), 0.0)

    def cdf(self, y):
        """Fraction of the eigenvalues of S up to y.

        Parameters
        ----------
        y : array

        Returns
        -------
        array
        """
        y = np.asarray(y, dtype=float)
        return np.where(y < 0, 0.0, self.noisy.cdf(self.epsilon + np.maximum(y, 0) / self.eta))

    def quantile(self, u):
        """The smallest y with a fraction u of the eigenvalues of S up to it.

        Parameters
        ----------
        u : array
            In [0, 1].

        Returns
        -------
        array
        """
        return self._kept(self.noisy.quantile(u))

    def _kept(self, x):
        """What the soft threshold makes of an eigenvalue."""
        return self.eta * np.maximum(x - self.epsilon, 0.0)


def learned_spectrum(result):
    """The spectrum that state evolution predicts for a trained layer.

    Parameters
    ----------
    result : Solution
        Of :func:`attn_lib.theory.single_head.solve`: its ``eta``, ``delta``, ``epsilon`` and the target are used.

    Returns
    -------
    LearnedSpectrum

    Raises
    ------
    ValueError
        The result lacks one of these, or describes untied weights, whose singular values have another law.
    """
    try:
        law, delta, eta, epsilon = result.problem.target, result.delta, result.eta, result.epsilon
    except AttributeError as error:
        raise ValueError(f"result of type {type(result).__name__}: must be a Solution of a single head") from error
    if hasattr(result, "noisy"):
        raise ValueError(f"result of type {type(result).__name__}: has a law of its own, result.density")
    return LearnedSpectrum(FreeConvolution(law, delta), eta, epsilon)
