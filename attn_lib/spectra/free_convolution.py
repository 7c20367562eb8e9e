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
from functools import cached_property
from typing import NamedTuple

import numpy as np

from attn_lib._checks import check_number
from attn_lib.fixed_point import ConvergenceError
from attn_lib.spectra.laws import SpectralLaw
from attn_lib.spectra.support import components, outliers

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
    1e-12 relative to the extent of the law, for delta from 1e-4 to 10, also for lists of some hundred eigenvalues.

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
        start = self._inside(float(eps))
        if start is None:
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
        return self._density(self._subordination(x))

    def hilbert(self, x):
        """Hilbert transform, the principal value of the integral of rho(y)/(x - y): the real part of G.

        Parameters
        ----------
        x : array

        Returns
        -------
        array
        """
        return self.law.resolvent(self._subordination(x)).real

    def cdf(self, x):
        r"""Mass below x, from the logarithmic potential L of the law.

        .. math:: \mu_\delta(y>x) = \frac1\pi\,\mathrm{Im}\Big[L(w)+\frac{\delta^2}2G_0(w)^2\Big]

        Parameters
        ----------
        x : array

        Returns
        -------
        array
        """
        return self._mass_below(self._subordination(x))

    def quantile(self, u):
        """The x with mass u below it.

        Parameters
        ----------
        u : array
            In [0, 1].

        Returns
        -------
        array

        Raises
        ------
        ValueError
            A u outside [0, 1].
        """
        u = np.asarray(u, dtype=float)
        if not ((u >= 0) & (u <= 1)).all():
            raise ValueError(f"u = {u!r}: must be in [0, 1]")
        ends = self._subordination(np.array([self.components[0].lower, self.components[-1].upper])).real
        low, high = (np.full_like(u, end) for end in ends)
        w = self._on_curve(self._mass_below, u, low, low + u * (high - low), high, 1.0)
        return self._position(w)

    @cached_property
    def components(self):
        """Intervals of the support with their masses, see :func:`attn_lib.spectra.support.components`."""
        return components(self.law, self.delta)

    @property
    def edges(self):
        """Ends of the components, ascending."""
        return np.array([end for component in self.components for end in component[:2]])

    @cached_property
    def outliers(self):
        """Isolated positive eigenvalues, see :func:`attn_lib.spectra.support.outliers`."""
        return outliers(self.law, self.delta)

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
            if iteration == 0:
                outside = lacking <= 0
            rise = (self.law.resolvent_derivative(a + 1j * b).real + N) / (2 * t * N**2)
            new = np.clip(t + lacking / np.maximum(rise, 1), t / 4, self.delta**2)
            done = outside | (np.abs(new - t) <= 1e-13 * t) | (np.abs(lacking) <= 1e-14 * self.delta**2)
            if done.all():
                return b
            t = np.where(done, t, new)
        raise ConvergenceError("the curve b(a) was not found", partial=b)

    @property
    def _floor(self):
        """Far below the distance from the curve to the law, delta/sqrt(d) for eigenvalues of weight 1/d.

        A b as small as this moves x in second order only.
        """
        return 1e-7 * self.delta

    def _density(self, w):
        """Density at a point of the curve."""
        return np.where(w.imag > 1.001 * self._floor, w.imag, 0.0) / (np.pi * self.delta**2)

    def _position(self, w):
        """x at a point of the curve."""
        return w.real + self.delta**2 * self.law.resolvent(w).real

    def _mass_below(self, w):
        """Mass below a point of the curve."""
        G = self.law.resolvent(w)
        above = (self.law.log_potential(w) + self.delta**2 * G**2 / 2).imag / np.pi
        lower, upper, mass = self.law.support.T
        in_gap = (w.real[..., None] > (lower + upper) / 2) @ mass  # there the imaginary part is a multiple of pi
        return np.where(self._density(w) > 0, 1 - above, in_gap)

    def _inside(self, x):
        """w at one x inside the support, by Newton's method in the upper half plane, or None where it finds none.

        A w above the real axis that is mapped to x is on the curve, and the only one.
        """
        w, scale = complex(x, self.delta), abs(x) + self.delta
        for _ in range(15):
            excess = w + self.delta**2 * self.law.resolvent(w) - x
            w = w - excess / self._slope(w)
            if not w.imag > self._floor * 1e3:
                return None
            if abs(excess) <= 1e-9 * scale:  # the step that followed has squared it
                return w if abs(w + self.delta**2 * self.law.resolvent(w) - x) <= 1e-13 * scale else None
        return None

    def _subordination(self, x):
        """w on the curve at each x, real where the density is zero."""
        x = np.asarray(x, dtype=float)
        if not np.isfinite(x).all():
            raise ValueError(f"x = {x!r}: must be finite numbers")
        # |delta^2 G0| <= delta on the curve
        w = self._on_curve(self._position, x, x - self.delta, x, x + self.delta, np.abs(x) + self.delta)
        return np.where(self._density(w) > 0, w, w.real)

    def _on_curve(self, value, target, low, a, high, scale):
        """Where the position (or the mass below) takes a value: Newton in a, kept within a bracket."""
        for _ in range(200):
            w = a + 1j * self._height(a)
            here = value(w)
            low, high = np.where(here < target, a, low), np.where(here < target, high, a)
            done = (np.abs(here - target) <= 1e-13 * scale) | (high - low <= 1e-15 * (np.abs(a) + self.delta))
            if done.all():
                return w
            step = (target - here) * (1 / self._slope(w)).real  # z is real on the curve: dw/dx = 1/slope
            new = a + (step if value == self._position else step * np.pi * self.delta**2 / w.imag)
            new = np.where((new > low) & (new < high), new, (low + high) / 2)
            a = np.where(done, a, new)
        raise ConvergenceError("no point of the curve b(a) with the wanted value", partial=w)
