r"""Free convolution with a semicircle: the spectrum of a matrix plus Gaussian noise.

Let :math:`S_0` be a symmetric d x d matrix whose eigenvalues have the law :math:`\mu_0` with resolvent :math:`G_0`, and
Z a GOE matrix with :math:`\mathrm{tr}\,Z^2=1`. For large d the eigenvalues of :math:`S_0+\delta Z` have a law
:math:`\mu_\delta` with resolvent

.. math:: G(z) = G_0(w), \qquad z = w + \delta^2 G_0(w),

w in the upper half plane, above the curve :math:`w=a+ib(a)` that is mapped to the real axis:

.. math:: \int\frac{\mu_0(ds)}{(a-s)^2+b^2} = \frac1{\delta^2} \ \ (b=0 \text{ if there is no } b>0),
   \qquad x = a+\delta^2\,\mathrm{Re}\,G_0(a+ib), \qquad \rho(x)=\frac{b}{\pi\delta^2}.

x increases with a, and so does the mass below x. Everything here is a function of a.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attn_lib._checks import check_number
from attn_lib.fixed_point import ConvergenceError
from attn_lib.spectra.laws import SpectralLaw

__all__ = ["FreeConvolution", "Tail"]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


class Tail(NamedTuple):
    r"""Integrals of the law above :math:`\epsilon`, the last one a derivative of the third.

    ``mass`` = :math:`\mu_\delta(x>\epsilon)`, ``J1`` = :math:`\int_\epsilon(x-\epsilon)\mu_\delta`,
    ``J`` = :math:`\int_\epsilon(x-\epsilon)^2\mu_\delta`, ``d1J`` = :math:`\partial J/\partial\delta`.
    """

    mass: float
    J1: float
    J: float
    d1J: float


@dataclass(frozen=True)
class FreeConvolution:
    r"""The law :math:`\mu_\delta` of the eigenvalues of :math:`S_0+\delta Z`.

    Parameters
    ----------
    law : SpectralLaw
        Law of the eigenvalues of S0.
    delta : float
        Standard deviation of the semicircle, > 0; its radius is 2 delta.

    Accuracy
    --------
    Relative 1e-10 or better for delta from 1e-4 to 10, also for lists of some hundred eigenvalues.

    Source
    ------
    Biane, Indiana Univ. Math. J. 46 (1997) 705.

    Examples
    --------
    >>> from attn_lib.spectra.laws import Semicircle
    >>> round(float(FreeConvolution(Semicircle(variance=3.0), 1.0).density(0.0)), 12) == round(1 / (2 * np.pi), 12)
    True
    """

    law: SpectralLaw
    delta: float

    def __post_init__(self):
        if not isinstance(self.law, SpectralLaw):
            raise ValueError(f"law = {self.law!r}: must be a law of attn_lib.spectra.laws")
        check_number("delta", self.delta, "a finite number > 0", lambda v: v > 0)

    def tail(self, eps):
        r"""Integrals above eps, along a path in the upper half plane.

        With :math:`\rho=-\mathrm{Im}\,G/\pi`, :math:`\rho h=-\mathrm{Im}\,G^2/(2\pi)` and G analytic,

        .. math::

            \int_\epsilon f\rho\,dx = -\frac1\pi\,\mathrm{Im}\int_{w_\epsilon}^{R} f(z)\,G_0(w)\,\frac{dz}{dw}\,dw,
            \qquad \partial_\delta J = 4\delta\int_\epsilon(x-\epsilon)\rho h\,dx,

        for polynomials f, R a real point above the law. Atoms, gaps and outliers need no treatment.

        Parameters
        ----------
        eps : float

        Returns
        -------
        Tail
        """
        check_number("eps", eps, "a finite number", lambda v: True)
        start = self._subordination(np.array([float(eps)]))[0]
        if start.imag == 0 and start.real > self.law.upper:
            return Tail(0.0, 0.0, 0.0, 0.0)
        corners = self._path(start)
        half = np.diff(corners)[:, None] / 2
        w = (corners[:-1, None] + half * (1 + NODES)).ravel()
        G, slope = self.law.resolvent(w), self._slope(w)
        dz = (half * WEIGHTS).ravel() * slope
        above = w + self.delta**2 * G - eps
        mass, J1, J, d1J = (float(-(f @ dz).imag / np.pi) for f in (G, above * G, above**2 * G, above * G**2))
        return Tail(max(mass, 0.0), max(J1, 0.0), max(J, 0.0), 2 * self.delta * d1J)

    def density(self, x):
        """Density at x, array or number.

        Parameters
        ----------
        x : array

        Returns
        -------
        array
        """
        return self._subordination(x).imag / (np.pi * self.delta**2)

    def hilbert(self, x):
        """Hilbert transform: the principal value of the integral of rho(y)/(x - y).

        Parameters
        ----------
        x : array

        Returns
        -------
        array
        """
        return (np.asarray(x, dtype=float) - self._subordination(x).real) / self.delta**2

    def _slope(self, w):
        """dz/dw."""
        return 1 + self.delta**2 * self.law.resolvent_derivative(w)

    def _path(self, w):
        """Corners from w upwards in geometric steps, as singularities may be as close as w is high, right, and down."""
        a, b = w.real, w.imag
        span = max(self.law.upper - min(self.law.lower, a), self.delta)
        right = max(self.law.upper, a) + span
        finest = max(b, 1e-4 * self.delta)  # isolated eigenvalues of weight 1/d are delta/sqrt(d) away or more
        steps = finest * 4.0 ** np.arange(np.ceil(np.log(span / finest) / np.log(4)) + 1)
        steps = np.minimum(steps, span)
        top = a + 1j * (b + steps[-1])
        over, down = right + 1j * top.imag, right + 0j
        return np.array([w, *(a + 1j * (b + steps)), (top + over) / 2, over, (over + down) / 2, down])

    def _height(self, a):
        """b(a), or a floor where b = 0.

        Newton in t = b^2: 1/N - delta^2 is concave and increases, so that the steps come from the left.
        """
        t = np.full_like(a, self._floor**2)
        for iteration in range(100):
            b = np.sqrt(t)
            N = -self.law.resolvent(a + 1j * b).imag / b
            lacking = self.delta**2 - 1 / N
            rise = (self.law.resolvent_derivative(a + 1j * b).real + N) / (2 * t * N**2)
            new = np.clip(t + lacking / np.maximum(rise, 1), t / 4, self.delta**2)
            done = np.abs(new - t) <= 1e-13 * t if iteration else lacking <= 0
            if iteration == 0:
                outside = done
            if (done | outside).all():
                return b
            t = np.where(outside, t, new)
        raise ConvergenceError("the curve b(a) was not found", partial=b)

    @property
    def _floor(self):
        """Below the distance from the curve to the law, delta/sqrt(d) for eigenvalues of weight 1/d."""
        return 1e-7 * self.delta

    def _subordination(self, x):
        """w on the curve at each x, by Newton in a, kept within a bracket."""
        x = np.asarray(x, dtype=float)
        scale = np.abs(x) + self.delta
        low, high = x - self.delta, x + self.delta  # |delta^2 G0| <= delta on the curve
        a = x
        for _ in range(200):
            w = a + 1j * self._height(a)
            here = a + self.delta**2 * self.law.resolvent(w).real
            low, high = np.where(here < x, a, low), np.where(here < x, high, a)
            done = (np.abs(here - x) <= 1e-13 * scale) | (high - low <= 1e-15 * scale)
            if done.all():
                return np.where(w.imag > 1.001 * self._floor, w, w.real)
            new = a + (x - here) * (1 / self._slope(w)).real  # z is real on the curve: dw/dx = 1/slope
            new = np.where((new > low) & (new < high), new, (low + high) / 2)
            a = np.where(done, a, new)
        raise ConvergenceError("the inverse of x(a) was not found", partial=w)
