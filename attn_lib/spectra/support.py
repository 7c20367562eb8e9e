r"""Where a free convolution with a semicircle lives: its components, and the outliers among them.

On the real line, off the law, :math:`N(a)=\int\mu_0(ds)/(a-s)^2=-G_0'(a)`. The points a at which
:math:`N(a)\le1/\delta^2` are mapped by :math:`x=a+\delta^2G_0(a)` to points x off the convolution. In a gap of the law
N is convex and grows towards both ends: the gap stays open if the minimum of N is below :math:`1/\delta^2`, and closes
otherwise.
"""

from typing import NamedTuple

import numpy as np

__all__ = ["Component", "Outlier", "components", "outliers"]


class Component(NamedTuple):
    """An interval of the support, its mass, and the rows of ``law.support`` that it comes from."""

    lower: float
    upper: float
    mass: float
    sources: slice


class Outlier(NamedTuple):
    """A target eigenvalue that forms a component by itself.

    ``position`` is the eigenvalue that it becomes, ``overlap`` the squared overlap of the eigenvectors before and after
    (for a repeated eigenvalue: the mean squared length that an eigenvector keeps in the old eigenspace), ``mass`` the
    fraction of eigenvalues.
    """

    eigenvalue: float
    position: float
    overlap: float
    mass: float


def components(law, delta):
    r"""Components of the support of the law plus a semicircle of standard deviation delta.

    Parameters
    ----------
    law : SpectralLaw
    delta : float
        > 0.

    Returns
    -------
    tuple of Component
        Ascending and disjoint. The mass of each is that of the part of the law which it comes from.

    Accuracy
    --------
    Edges to 1e-14 relative to the extent of the law. A gap that is about to close may be missed when the minimum of
    N is within 1e-12, relatively, of the value at which it closes.

    Source
    ------
    Biane, Indiana Univ. Math. J. 46 (1997) 705.

    Examples
    --------
    >>> from attn_lib.spectra.laws import FiniteRank
    >>> [round(c.mass, 12) for c in components(FiniteRank(eigenvalues=[3.0], d=100), 1.0)]
    [0.99, 0.01]
    """
    below, above, mass = law.support.T
    gap, inside = _open_gaps(law, delta, above[:-1], below[1:])
    first, last = [below[0] - delta], [above[-1] + delta]
    low = _crossing(law, delta, np.concatenate([first, inside]), np.concatenate([below[:1], below[1:][gap]]))
    high = _crossing(law, delta, np.concatenate([inside, last]), np.concatenate([above[:-1][gap], above[-1:]]))
    edges = np.column_stack([a + delta**2 * law.resolvent(a + 0j).real for a in (low, high)])
    cuts = [0, *(gap + 1), len(mass)]
    return tuple(
        Component(float(lower), float(upper), float(mass[i:j].sum()), slice(int(i), int(j)))
        for (lower, upper), i, j in zip(edges, cuts[:-1], cuts[1:], strict=True)
    )


def outliers(law, delta):
    r"""Positive eigenvalues of a finite list that form a component by themselves.

    With G and N of the *other* eigenvalues, an eigenvalue s is found at

    .. math:: x = s+\delta^2G(s), \qquad (v_{\rm before}\cdot v_{\rm after})^2 = 1-\delta^2N(s).

    If all others are zero and many these are :math:`s+\delta^2/s` and :math:`1-\delta^2/s^2` for :math:`s>\delta`. All
    eigenvalues that share a component are bulk.

    Parameters
    ----------
    law : SpectralLaw
    delta : float
        > 0.

    Returns
    -------
    tuple of Outlier
        Ascending; empty for a law with a density.

    Accuracy
    --------
    Leading order in the fraction m of eigenvalues that equal s. In a matrix they spread by delta sqrt(2/d) around the
    position, or over its component, of half width about 2 delta sqrt(m), if they are many.

    Source
    ------
    Baik, Ben Arous and Peche, Ann. Probab. 33 (2005) 1643; Benaych-Georges and Nadakuditi, Adv. Math. 227 (2011) 494.

    Examples
    --------
    >>> from attn_lib.spectra.laws import FiniteRank
    >>> (top,) = outliers(FiniteRank(eigenvalues=[2.0], d=10**6), 1.0)
    >>> round(top.position, 4), round(top.overlap, 4)
    (2.5, 0.75)
    """
    if not hasattr(law, "atoms"):
        return ()
    values, weights = law.atoms
    found = []
    for component in components(law, delta):
        i, j = component.sources.start, component.sources.stop
        if j - i > 1 or values[i] <= 0:
            continue
        distance, mass = values[i] - np.delete(values, i), np.delete(weights, i)
        position = values[i] + delta**2 * (mass / distance).sum()
        overlap = 1 - delta**2 * (mass / distance**2).sum()
        found.append(Outlier(*map(float, (values[i], position, overlap, weights[i]))))
    return tuple(found)


def _open_gaps(law, delta, low, high):
    """Which gaps stay open, and in each a point where N < 1/delta^2: bisection for the minimum, until it is decided."""
    index, found = np.nonzero(high - low > 1e-6 * delta)[0], []  # N > m/(high - low)^2, m the mass of a neighbour
    low, high = low[index], high[index]
    for _ in range(60):
        a = (low + high) / 2
        step = 1e-9 * (high - low)
        derivative = law.resolvent_derivative(a + 1j * step)
        N, slope = -derivative.real * delta**2, -derivative.imag / step * delta**2  # N real-analytic: exact to step^2
        is_open = N < 1
        found += zip(index[is_open], a[is_open], strict=True)
        lowest = N - np.abs(slope) * (high - low) / 2  # a convex function lies above its tangent
        undecided = ~is_open & (lowest < 1)
        low, high = np.where(slope < 0, a, low)[undecided], np.where(slope < 0, high, a)[undecided]
        index = index[undecided]
        if not index.size:
            break
    found = sorted(found)
    return np.array([i for i, _ in found], dtype=int), np.array([a for _, a in found])


def _crossing(law, delta, outside, inside):
    """Where N passes 1/delta^2 between a point where it is smaller and the law, where it is larger."""
    for _ in range(80):
        a = (outside + inside) / 2
        a = np.where(a == inside, outside, a)  # adjacent numbers: N may be infinite at the edge of the law
        small = -law.resolvent_derivative(a + 0j).real * delta**2 <= 1
        outside, inside = np.where(small, a, outside), np.where(small, inside, a)
    return outside
