r"""The channel of full-rank attention: what one sample tells, averaged over its Gaussian fields.

A sample has a noisy target field :math:`z_0` and a cavity field :math:`\omega`, symmetric T x T matrices. Their
independent entries a <= b, stacked into vectors, have the covariance
:math:`C\begin{pmatrix}Q'&m\\m&q\end{pmatrix}` with :math:`C=\mathrm{diag}(1+\delta_{ab})` and
:math:`Q'=\mathrm{tr}S_0^2+\Delta/2`. The student's field is the minimiser z in

.. math::

    M(m, q, \Sigma) = E\min_z\Big[\ell(z, z_0) + \frac{(z-\omega)^\top C^{-1}(z-\omega)}{2\Sigma}\Big], \qquad
    \ell = \sum_{ab}(\mathrm{softmax}(\beta_0 z_0) - \mathrm{softmax}(\beta z))_{ab}^2.

There :math:`z-\omega=-\Sigma Cg` with :math:`g=\partial_z\ell`; write H and K for :math:`\partial_z^2\ell` and
:math:`\partial_z\partial_{z_0}\ell`. The conjugate order parameters of a fixed point are derivatives of M:

.. math::

    \hat q = 2\alpha E[g^\top Cg], \qquad \hat\Sigma = 2\alpha A, \qquad \hat m = -2\alpha B, \qquad
    A = E\,\mathrm{tr}[C\,\partial_\omega g], \quad B = E\,\mathrm{tr}[C\,\partial_{z_0}g].

A and B have two forms, with or without derivatives of g (Stein's lemma):

.. math::

    A = E\,\mathrm{tr}[C(1+\Sigma HC)^{-1}H], \quad B = E\,\mathrm{tr}[C(1+\Sigma HC)^{-1}K]; \qquad
    \begin{pmatrix}q&m\\m&Q'\end{pmatrix}\begin{pmatrix}A\\B\end{pmatrix}
    = \begin{pmatrix}E[\omega\cdot g]\\E[z_0\cdot g]\end{pmatrix}.

Where z jumps (the objective has several minima) only the second is right.

A channel is any object with ``problem``, ``Q_prime``, ``accuracy`` (relative, that of a good compromise with time),
``least_spread`` (of :math:`(q-m^2/Q')/Q'`, for the Stein form), ``error_share`` (the error of a rule divided by its
change from the coarser one before it) and the methods ``averages(overlaps, follow=False)``,
``refined()`` and ``test_error(m, q)`` of :class:`TwoTokenChannel`.
"""

from math import ceil, log2
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from attn_lib.gaussian import gaussian_ball
from attn_lib.theory.attention_jumps import ties
from attn_lib.theory.attention_prox import descend, loss_terms, may_jump, search
from attn_lib.theory.spectral_prior import Hats

__all__ = ["Averages", "TwoTokenChannel", "conjugates", "form_of", "rotated", "stein"]

_BLOCK = 16384  # nodes at a time, so that they stay in the cache
_NEAR = 0.01  # relative change of the overlaps up to which a search for other minima is good
_WIDEST = 300.0  # standard deviation of a field, in units of 1/beta


class Averages(NamedTuple):
    """Averages over one sample (no factor alpha)."""

    loss: float  # E l at the minimiser
    g_g: float  # E g^T C g; half of Sigma times it is the quadratic part of M
    omega_g: float  # E omega.g
    z0_g: float  # E z0.g
    response: float  # E tr[C (1 + Sigma H C)^-1 H], the derivative form of A
    response_star: float  # E tr[C (1 + Sigma H C)^-1 K], the derivative form of B


def stein(channel, overlaps, averages):
    """A and B by Stein's lemma.

    Parameters
    ----------
    channel
        Of which Q' is used.
    overlaps : Overlaps
    averages : Averages

    Returns
    -------
    tuple of two floats
    """
    m, q, _ = overlaps
    along = m / channel.Q_prime
    A = (averages.omega_g - along * averages.z0_g) / (q - along * m)
    return A, (averages.z0_g - m * A) / channel.Q_prime


def form_of(channel, overlaps):
    r"""The form of A and B to use: "derivative" where :math:`(q-m^2/Q')/Q'` is too small for "stein".

    Parameters
    ----------
    channel
    overlaps : Overlaps

    Returns
    -------
    str
    """
    m, q, _ = overlaps
    return "stein" if q * channel.Q_prime - m**2 > channel.least_spread * channel.Q_prime**2 else "derivative"


def conjugates(channel, overlaps, averages, form=None):
    """Conjugate order parameters of the channel's problem.

    Parameters
    ----------
    channel
    overlaps : Overlaps
    averages : Averages
        At these overlaps.
    form : {"stein", "derivative"}, optional
        By default the one of :func:`form_of`.

    Returns
    -------
    Hats
    """
    if (form or form_of(channel, overlaps)) == "stein":
        A, B = stein(channel, overlaps, averages)
    else:
        A, B = averages.response, averages.response_star
    alpha = channel.problem.alpha
    return Hats(m_hat=-2 * alpha * B, q_hat=2 * alpha * averages.g_g, Sigma_hat=2 * alpha * A)


class TwoTokenChannel:
    r"""The channel of two tokens by a deterministic rule in four dimensions.

    In the rotated fields :math:`(u+v)/\sqrt2` and :math:`(u-v)/\sqrt2` the covariance C is diagonal, (4, 2), and
    neither the exchange of the rows nor that of the columns (:math:`s\to1-s`) changes anything: of the four standard
    Gaussians that make up :math:`z_0` and :math:`\omega-(m/Q')z_0`, the two of the target need only be positive.
    On these nodes the Stein form is the exact derivative of the sum that stands for M. Where the prox jumps between
    two neighbours the sum is corrected (:mod:`attn_lib.theory.attention_jumps`).

    Parameters
    ----------
    problem : SingleHead
        With n_tokens = 2.
    n : int
        Nodes per half axis, in the geometric mean; those of the target, along which the averages vary more, have twice
        as many as the others.
    radius : float
        Of the ball of nodes, in units of a standard deviation.

    Accuracy
    --------
    Of the averages, relative: 1e-4, 1e-5 for n = 9, 14 where the prox jumps rarely (beta^2 Sigma < 3); where it jumps
    often, 1e-3, 3e-4, 1e-4 for n = 9, 14, 21.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> problem = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> TwoTokenChannel(problem).test_error(0.0, 0.0) > TwoTokenChannel(problem).test_error(1.0, 1.0)
    True
    """

    accuracy = 1e-4
    least_spread = 1e-12
    error_share = 1 / (1.5**2 - 1)  # of errors that fall like 1/n^2, where n grows by a factor 1.5

    def __init__(self, problem, n=7, radius=5.5):
        self.problem, self.n, self.radius = problem, n, radius
        self.Q_prime = problem.noisy_second_moment
        fine, self.step = np.array([0.5, 2]) ** 0.5 * radius / n
        self.nodes, weight = gaussian_ball([fine, fine, self.step, self.step], radius, [True, True, False, False])
        self.weight = weight / weight.sum()
        # neighbours on a line of the last coordinate, along which both fields move alike
        self.first = np.flatnonzero((self.nodes[:3, 1:] == self.nodes[:3, :-1]).all(axis=0))
        self.z0 = rotated(self.Q_prime**0.5 * self.nodes[:2])
        self.target = expit(problem.beta0 * self.z0)
        self.z, self.at_jumps = None, 0.0
        self._searched, self._contested = None, np.zeros(self.weight.size, dtype=bool)

    def averages(self, overlaps, follow=False):
        """Averages at the overlaps.

        Parameters
        ----------
        overlaps : Overlaps
        follow : bool
            True to continue the minimum of the prox that the last call took at each node, and to keep the correction
            for its jumps, which makes the averages smooth functions of the overlaps; False to look for the lowest one.

        Returns
        -------
        Averages
        """
        near = self._searched is not None and np.allclose(overlaps, self._searched, rtol=_NEAR, atol=0)
        z, total = np.empty_like(self.z0), np.zeros(len(Averages._fields))
        for part in (slice(i, i + _BLOCK) for i in range(0, self.weight.size, _BLOCK)):
            z0, omega = self._fields(overlaps, part)
            z[:, part] = self._prox(overlaps.Sigma, omega, part, follow, near)
            total += self._terms(overlaps, z[:, part], z0, omega, self.target[:, part]) @ self.weight[part]
        self.z = z
        if not follow:
            self._searched = self._searched if near else overlaps
            self.at_jumps = self._at_jumps(overlaps) if may_jump(self.problem.beta, overlaps.Sigma) else 0.0
        return Averages(*map(float, total + self.at_jumps))

    def refined(self):
        """The same problem with half as many nodes again along each axis.

        Returns
        -------
        TwoTokenChannel
        """
        return TwoTokenChannel(self.problem, round(1.5 * self.n), self.radius + 0.5)

    def test_error(self, m, q):
        r"""Error on a fresh sample with noisy label.

        .. math:: 4\,E(s(\beta_0u_0)-s(\beta u))^2, \qquad
            (u_0, u)\sim N\Big(0, 3\begin{pmatrix}Q'&m\\m&q\end{pmatrix}\Big)

        Parameters
        ----------
        m, q : float
            With m^2 <= q Q'.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            Fields beta0 u0 or beta u of a standard deviation above 300: the sigmoid is a step to this rule.

        Accuracy
        --------
        1e-7: nodes are at most one apart in beta0 u0 and beta u.
        """
        deviation = (3 * max(self.problem.beta0**2 * self.Q_prime, self.problem.beta**2 * q)) ** 0.5
        if not deviation <= _WIDEST:
            raise ValueError(f"fields of standard deviation {deviation:.3g} (q = {q}): must be <= {_WIDEST:g}/beta")
        halvings = max(0, ceil(log2(max(deviation, 1.0) / 10)))
        x, weight = gaussian_ball(0.1 / 2**halvings, 7.0, [True, False])
        u0 = (3 * self.Q_prime) ** 0.5 * x[0]
        u = m / self.Q_prime * u0 + (3 * max(q - m**2 / self.Q_prime, 0.0)) ** 0.5 * x[1]
        return float(4 * (expit(self.problem.beta0 * u0) - expit(self.problem.beta * u)) ** 2 @ weight)

    def _fields(self, overlaps, part):
        """Target fields and cavity fields at some nodes."""
        m, q, _ = overlaps
        spread = max(q - m**2 / self.Q_prime, 0.0) ** 0.5
        return self.z0[:, part], m / self.Q_prime * self.z0[:, part] + rotated(spread * self.nodes[:1:-1, part])

    def _prox(self, Sigma, omega, part, follow, near):
        target, beta = self.target[:, part], self.problem.beta
        start = omega if self.z is None or Sigma == 0 else self.z[:, part]
        if follow and self.z is not None:
            return descend(start, omega, target, beta, Sigma)[0]
        z, contested = search(omega, target, beta, Sigma, start, self._contested[part] if near else None)
        if not near:
            self._contested[part] = contested
        return z

    def _terms(self, overlaps, z, z0, omega, target):
        """What :class:`Averages` averages, shape (6, N)."""
        Sigma, beta, beta0 = overlaps.Sigma, self.problem.beta, self.problem.beta0
        f, g, h, slope = loss_terms(z, target, beta)
        k = -4 * slope * beta0 * target * (1 - target)
        # C (1 + Sigma H C)^-1 has the diagonal (3 + 8 Sigma h_v, 3 + 8 Sigma h_u) / determinant
        a, c = 1 + 3 * Sigma * h
        diagonal = (3 + 8 * Sigma * h[::-1]) / (a * c - Sigma**2 * h[0] * h[1])
        g_g = 3 * (g[0] ** 2 + g[1] ** 2) + 2 * g[0] * g[1]
        products = [(x * y).sum(axis=0) for x, y in ((omega, g), (z0, g), (diagonal, h), (diagonal, k))]
        return np.stack([f[0] + f[1], g_g, *products])

    def _at_jumps(self, overlaps):
        """What the sum over nodes lacks because the prox jumps between neighbours."""
        m, q, Sigma = overlaps
        beta, h = self.problem.beta, self.step
        step = rotated(np.array([[max(q - m**2 / self.Q_prime, 0.0) ** 0.5 * h], [0.0]]))
        distance = np.square(np.diff(self.z, axis=1)[:, self.first]).sum(axis=0)
        first = self.first[distance > 2 * (step**2).sum()]
        if not first.size:
            return 0.0
        z0, omega = self._fields(overlaps, first)
        index, t, *wells = ties(self.z[:, first], self.z[:, first + 1], omega, step, self.target[:, first], beta, Sigma)
        first, z0, omega = first[index], z0[:, index], omega[:, index] + t * step
        left, right = (self._terms(overlaps, z, z0, omega, self.target[:, first]) for z in wells)
        weight = self.weight[first] * np.exp(-t * h * (self.nodes[3, first] + t * h / 2))
        return (left - right) @ ((t - 0.5) * weight)


def rotated(x):
    """Fields (u, v) of covariance C = ((3, 1), (1, 3)) from two independent standard Gaussians.

    Parameters
    ----------
    x : array, shape (2, ...)

    Returns
    -------
    array, shape (2, ...)
    """
    a, b = 2**0.5 * x[0], x[1]
    return np.stack([a + b, a - b])
