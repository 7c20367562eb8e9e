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
    """The channel of two tokens by a deterministic rule in four dimensions.

    Parameters
    ----------
    problem : SingleHead
        With n_tokens = 2.
    n : int
        Nodes per half axis.
    """

    def __init__(self, problem, n):
        raise NotImplementedError

    def averages(self, overlaps):
        """Averages at the overlaps; the lowest minimum of the prox at every node.

        Parameters
        ----------
        overlaps : Overlaps

        Returns
        -------
        Averages
        """
        raise NotImplementedError
