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

Where z jumps (the objective has several minima) only the second is right. Any object with a method
``averages(overlaps)`` that returns :class:`Averages` can serve as a channel.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from attn_lib.gaussian import gaussian_ball
from attn_lib.theory.attention_prox import descend, loss_terms, lowest

__all__ = ["Averages", "TwoTokenChannel"]


class Averages(NamedTuple):
    """Averages over one sample (no factor alpha).

    Attributes
    ----------
    loss : float
        E l at the minimiser.
    g_g : float
        E g^T C g; half of Sigma times it is the quadratic part of M.
    omega_g, z0_g : float
        E omega.g and E z0.g, for the Stein form.
    response, response_star : float
        E tr[C (1 + Sigma H C)^-1 H] and E tr[C (1 + Sigma H C)^-1 K], the derivative form of A and B.
    """

    loss: float
    g_g: float
    omega_g: float
    z0_g: float
    response: float
    response_star: float


class TwoTokenChannel:
    r"""The channel of two tokens by a deterministic rule in four dimensions.

    In the rotated fields :math:`(u+v)/\sqrt2` and :math:`(u-v)/\sqrt2` the covariance C is diagonal, (4, 2), and
    neither the exchange of the rows nor that of the tokens (:math:`s\to1-s`) changes anything: of the four standard
    Gaussians that make up :math:`z_0` and :math:`\omega-(m/Q')z_0`, the two of the target need only be positive.
    On these nodes the Stein form is the exact derivative of the sum that stands for M.

    Parameters
    ----------
    problem : SingleHead
        With n_tokens = 2.
    n : int
        Nodes per half axis.
    radius : float
        Of the ball of nodes in units of a standard deviation.

    Accuracy
    --------
    """

    def __init__(self, problem, n, radius=6.0):
        self.problem, self.n, self.radius = problem, n, radius
        self.Q_prime = problem.target.second_moment + problem.Delta / 2
        self.nodes, self.weight = gaussian_ball(radius / n, radius, [True, True, False, False])
        self.weight = self.weight / self.weight.sum()
        self.z0 = _rotated(self.Q_prime**0.5 * self.nodes[:2])
        self.target = expit(problem.beta0 * self.z0)
        self.z = None

    def averages(self, overlaps, follow=False):
        """Averages at the overlaps.

        Parameters
        ----------
        overlaps : Overlaps
        follow : bool
            True to continue the minimum of the prox that the last call took at each node, which makes the averages
            smooth functions of the overlaps; False to look for the lowest one.

        Returns
        -------
        Averages
        """
        m, q, Sigma = overlaps
        beta, beta0 = self.problem.beta, self.problem.beta0
        spread = max(q - m**2 / self.Q_prime, 0.0) ** 0.5
        omega = m / self.Q_prime * self.z0 + _rotated(spread * self.nodes[2:])
        if follow and self.z is not None:
            self.z, _ = descend(self.z, omega, self.target, beta, Sigma)
        else:
            self.z = lowest(omega, self.target, beta, Sigma, () if self.z is None else (self.z,))
        f, g, h, slope = loss_terms(self.z, self.target, beta)
        k = -4 * slope * beta0 * self.target * (1 - self.target)
        a, c = 1 + 3 * Sigma * h
        determinant = a * c - Sigma**2 * h[0] * h[1]
        # C (1 + Sigma H C)^-1 has the diagonal (3 + 8 Sigma h_v, 3 + 8 Sigma h_u) / determinant
        diagonal = (3 + 8 * Sigma * h[::-1]) / determinant
        mean = self.weight
        return Averages(
            loss=float((f[0] + f[1]) @ mean),
            g_g=float((3 * (g[0] ** 2 + g[1] ** 2) + 2 * g[0] * g[1]) @ mean),
            omega_g=float((omega * g).sum(axis=0) @ mean),
            z0_g=float((self.z0 * g).sum(axis=0) @ mean),
            response=float((diagonal * h).sum(axis=0) @ mean),
            response_star=float((diagonal * k).sum(axis=0) @ mean),
        )

    def refined(self):
        """The same with about half as many nodes again along each axis.

        Returns
        -------
        TwoTokenChannel
        """
        return TwoTokenChannel(self.problem, -(-3 * self.n // 2), self.radius + 0.5)


def _rotated(x):
    """Fields (u, v) of covariance C from two independent standard ones."""
    a, b = 2 * x[0] / 2**0.5, x[1]
    return np.stack([a + b, a - b])
