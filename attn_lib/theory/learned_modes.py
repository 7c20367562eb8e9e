r"""Recovered modes of the target, and what learned modes and bulk contribute to the overlaps.

Of the target plus noise, :math:`S_0+\delta Z`, training keeps :math:`S=\eta\,\mathrm{ReLU}(S_0+\delta Z-\epsilon)`. A
target eigenvalue s among many smaller ones stands out of the noise if :math:`s>\delta`: at :math:`x(s)=s+\delta^2/s`,
with the squared overlap :math:`1-\delta^2/s^2` of the eigenvectors. It is *recovered* if also :math:`x(s)>\epsilon`.
Let r be the fraction of recovered eigenvalues. The eigenvectors of the r d largest eigenvalues of S are the *learned
modes*, those of the other positive eigenvalues the *bulk*.
"""

from typing import NamedTuple

import numpy as np

from attn_lib.spectra.free_convolution import FreeConvolution
from attn_lib.spectra.laws import FiniteRank

__all__ = ["Modes", "Part", "coupled_modes", "isolated_modes", "least_recovered"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(100)


class Part(NamedTuple):
    """What some eigenvectors of S contribute to m = tr S S0 and q = tr S^2."""

    m: float
    q: float


class Modes(NamedTuple):
    r"""Recovered modes and the two parts of S.

    ``recovered`` = r, ``square`` is what the recovered modes contribute to :math:`Q_0=\mathrm{tr}S_0^2`;
    ``learned`` and ``bulk`` are of type :class:`Part`.
    """

    recovered: float
    square: float
    learned: Part
    bulk: Part


def least_recovered(delta, epsilon):
    r"""The level above which eigenvalues of the target are recovered.

    .. math::

        s_c = \delta \ \ (\epsilon\le2\delta), \qquad
        s_c = \tfrac12\big(\epsilon+\sqrt{\epsilon^2-4\delta^2}\big), \text{ where } x(s_c)=\epsilon, \ \
        (\epsilon>2\delta).

    Parameters
    ----------
    delta, epsilon : float
        > 0 and >= 0.

    Returns
    -------
    float
    """
    return delta if epsilon <= 2 * delta else (epsilon + (epsilon**2 - 4 * delta**2) ** 0.5) / 2


def isolated_modes(solution):
    r"""Every recovered mode as an outlier of a semicircle that all other modes make up.

    .. math::

        l = \eta(x(s)-\epsilon), \quad q_{\rm learned} = \int_Rl^2\mu_0, \quad
        m_{\rm learned} = \int_Rls\Big(1-\frac{\delta^2}{s^2}\Big)\mu_0, \quad
        q_{\rm bulk} = (1-r)\,\eta^2\int_\epsilon(x-\epsilon)^2\rho_{\bar\delta}, \quad m_{\rm bulk} = 0,

    with the semicircle :math:`\rho_{\bar\delta}` of standard deviation :math:`\bar\delta=\delta\sqrt{1-r}`.

    Parameters
    ----------
    solution : Solution
        With a threshold epsilon.

    Returns
    -------
    Modes
    """
    eta, delta, epsilon = solution.eta, solution.delta, solution.epsilon
    s, mass = _recovered(solution)
    r = min(float(mass.sum()), 1.0)
    level = eta * (s + delta**2 / s - epsilon)
    learned = Part(m=float(mass @ (level * s * (1 - delta**2 / s**2))), q=float(mass @ level**2))
    noise = delta * (1 - r) ** 0.5
    square = FreeConvolution(FiniteRank(eigenvalues=[0.0]), noise).tail(epsilon).J if noise > 1e-6 * delta else 0.0
    return Modes(r, float(mass @ s**2), learned, Part(m=0.0, q=(1 - r) * eta**2 * square))


def coupled_modes(solution):
    r"""The parts without this approximation, by free convolution.

    .. math::

        q = \int l^2\mu_\delta, \qquad m = \int l\,\xi\,\mu_\delta, \qquad l = \eta(x-\epsilon), \qquad
        \xi(x) = x-2\delta^2h(x),

    above :math:`x_r` for the learned modes and from :math:`\epsilon` to :math:`x_r` for the bulk, with
    :math:`\mu_\delta(x>x_r)=r`; h is the Hilbert transform of the law :math:`\mu_\delta` of :math:`S_0+\delta Z`, and
    :math:`\xi` the mean of :math:`v^\top S_0v` over its eigenvectors v at x. The two parts sum to m and q of the state
    evolution.

    Parameters
    ----------
    solution : Solution
        With a threshold epsilon.

    Returns
    -------
    Modes

    Accuracy
    --------
    1e-9 for the sums, 1e-7 for the border between the parts where it lies in a continuous part of the spectrum.

    Source
    ------
    Bun, Allez, Bouchaud and Potters, IEEE Trans. Inf. Theory 62 (2016) 7475, for xi.
    """
    s, mass = _recovered(solution)
    r = min(float(mass.sum()), 1.0)
    noisy = FreeConvolution(solution.problem.target, solution.delta)
    border = max(float(noisy.quantile(1 - r)), solution.epsilon)
    learned, total = (_above(solution, noisy, x) for x in (border, solution.epsilon))
    return Modes(r, float(mass @ s**2), learned, Part(total.m - learned.m, total.q - learned.q))


def _above(solution, noisy, x):
    """The part of the eigenvalues above x >= epsilon; the integral of h by the derivative of J1 in delta."""
    eta, delta, epsilon = solution.eta, solution.delta, solution.epsilon
    tail, step = noisy.tail(x), 1e-3 * delta
    J1 = [FreeConvolution(noisy.law, delta + k * step).tail(x).J1 for k in (-2, -1, 1, 2)]
    h = np.dot([1, -8, 8, -1], J1) / (24 * step * delta)
    above = x - epsilon
    first, square = tail.J1 + above * tail.mass, tail.J + 2 * above * tail.J1 + above**2 * tail.mass
    shrunk = square + epsilon * first - 2 * delta**2 * (tail.d1J / (4 * delta) + above * h)
    return Part(m=eta * float(shrunk), q=eta**2 * square)


def _recovered(solution):
    """Target eigenvalues that are recovered and their masses: a list, or nodes on the continuous part."""
    law, least = solution.problem.target, least_recovered(solution.delta, solution.epsilon)
    if hasattr(law, "atoms"):
        s, mass = law.atoms
        return s[s > least], mass[s > least]
    lower, upper = law.bulk
    centre, radius = (lower + upper) / 2, (upper - lower) / 2
    # s = centre + radius cos(angle) removes the square roots at the edges
    last = np.arccos(np.clip((least - centre) / radius, -1, 1))
    angle = last * (1 + _NODES) / 2
    s = centre + radius * np.cos(angle)
    density = -law.resolvent(s + 0j).imag / np.pi
    return s, density * radius * np.sin(angle) * _WEIGHTS * last / 2
