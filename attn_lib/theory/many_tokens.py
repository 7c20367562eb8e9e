r"""The channel of three and more tokens, by scrambled Sobol points.

In the coordinates of :mod:`attn_lib.theory.many_tokens_prox` the fields of a sample are two vectors with
:math:`k=(T^2+T-2)/2` components each, :math:`(z_0,\omega)_i \sim N(0, [[Q', m],[m, q]])` independently, and

.. math::

    E[g^\top Cg] = E|g|^2, \qquad E\,\mathrm{tr}[C(1+\Sigma HC)^{-1}H] = E\,\mathrm{tr}[(1+\Sigma H)^{-1}H],

with gradient and Hessian in y on the right. The averages run over 2k = T^2 + T - 2 independent Gaussians: 10
dimensions for three tokens, 18 for four. The same points serve at all overlaps, so a fixed point is one of the sample.
"""

import numpy as np
from scipy.special import softmax
from scipy.stats import norm, qmc

from attn_lib._checks import check_integer
from attn_lib.theory.attention_channel import Averages
from attn_lib.theory.many_tokens_prox import (
    MIN_CURVATURE,
    attention,
    descend,
    field_basis,
    loss,
    loss_derivatives,
    target_derivative,
)

__all__ = ["ManyTokenChannel"]

_BLOCK = 2048  # points handled at a time: their Hessians fit in a cache
_NEAR = 0.03  # relative change of the overlaps up to which a search for other minima is good


class ManyTokenChannel:
    r"""Averages over one sample of T >= 2 tokens, with standard errors.

    The points are ``n_scrambles`` independent scramblings of a Sobol sequence, each turned into Gaussians and then
    shifted and mixed linearly so that its means vanish and its second moments are exact. The scatter between them gives
    the standard errors.

    On these points the Stein form is the exact derivative of the sum that stands for M.

    Parameters
    ----------
    problem : SingleHead
    log2_points : int
        Each scrambling has 2 ** log2_points points; from 6 to 18.
    n_scrambles : int
        At least 2.
    seed : int
        Of the scramblings, >= 0.

    Raises
    ------
    ValueError
        Naming the argument, the value and the allowed range.

    Accuracy
    --------
    See :meth:`standard_errors`. With 8 x 4096 points, T = 3, Delta = 0.5 and alpha from 0.1 to 2 they are below 4e-3
    (relative), and they fall as the power -0.7 of the number of points. The prox is the lowest of the minima reached
    from three starts (one where the objective is convex). At beta = 1, Sigma <= 10 and q <= 2 no other start found a
    lower one; at beta = 2 others did for some percent of the points.

    Source
    ------
    arXiv 2509.24914; the coordinates and the rule are ours.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> from attn_lib.theory.spectral_prior import Overlaps
    >>> target = MarchenkoPastur(kappa0=0.5)
    >>> problem = SingleHead(alpha=0.2, lam=0.01, Delta=0.5, kappa=1.0, target=target, n_tokens=3)
    >>> channel = ManyTokenChannel(problem)
    >>> round(channel.averages(Overlaps(m=1.4, q=1.5, Sigma=2.0)).loss, 2)
    0.08
    """

    accuracy = 2e-3  # change wanted between a rule and the refined one, whose error is 0.4 times as large
    least_spread = 1e-10  # of q Q' - m^2, relative, for the Stein form
    error_share = 1.0  # on the safe side: N grows by a factor 4

    def __init__(self, problem, log2_points=11, n_scrambles=8, seed=0):
        check_integer("log2_points", log2_points, 6, 18)
        check_integer("n_scrambles", n_scrambles, 2, 1024)
        check_integer("seed", seed, 0)
        self.problem, self.log2_points, self.n_scrambles, self.seed = problem, log2_points, n_scrambles, seed
        self.Q_prime = problem.noisy_second_moment
        self.basis = field_basis(problem.n_tokens)
        k = len(self.basis)
        seeds = np.random.default_rng(seed).spawn(n_scrambles)
        points = np.concatenate([_points(2 * k, log2_points, rng) for rng in seeds], axis=1)
        self.z0, self.own = self.Q_prime**0.5 * points[:k], points[k:]
        self.target = attention(self.z0, self.basis, problem.beta0)
        self.y = None
        self._searched, self._rivals = None, None

    def averages(self, overlaps, follow=False):
        """Averages at the overlaps.

        Parameters
        ----------
        overlaps : Overlaps
        follow : bool
            True to continue the minimum of the prox that the last call took at each point, which makes the averages
            smooth functions of the overlaps; False to look for the lowest one.

        Returns
        -------
        Averages

        Raises
        ------
        FloatingPointError
            The overlaps are not those of two Gaussians, or a proximal operator was not found.
        """
        return Averages(*map(float, np.mean(self.scrambled_averages(overlaps, follow), axis=1)))

    def standard_errors(self, overlaps):
        """Standard errors of :meth:`averages`.

        Parameters
        ----------
        overlaps : Overlaps

        Returns
        -------
        Averages
        """
        spread = np.std(self.scrambled_averages(overlaps), axis=1, ddof=1)
        return Averages(*map(float, spread / self.n_scrambles**0.5))

    def scrambled_averages(self, overlaps, follow=False):
        """Averages over each scrambling.

        Parameters
        ----------
        overlaps, follow
            As in :meth:`averages`.

        Returns
        -------
        Averages
            Of arrays, shape (n_scrambles,).
        """
        omega = overlaps.m / self.Q_prime * self.z0 + self._spread(overlaps.m, overlaps.q) * self.own
        if follow and self.y is not None:
            self.y = self._descend(self.y, omega, overlaps.Sigma)
        else:
            self.y = self._lowest(omega, overlaps)
        parts = [self._integrands(omega, overlaps.Sigma, block) for block in self._blocks(self.y.shape[1])]
        return Averages(*(self._means(nodes) for nodes in np.concatenate(parts, axis=1)))

    def test_error(self, m, q):
        r"""Error on a fresh sample with noisy label.

        .. math::

            T\,E\,|\mathrm{softmax}(\beta_0u_0)-\mathrm{softmax}(\beta u)|^2, \qquad
            (u_0, u)\sim N\Big(0, C_1\begin{pmatrix}Q'&m\\m&q\end{pmatrix}\Big)

        where u is one row of fields less its diagonal entry: u = 0 there, and :math:`C_1=I+2\cdot11^\top` elsewhere.

        Parameters
        ----------
        m, q : float
            With m^2 <= q Q'.

        Returns
        -------
        float

        Accuracy
        --------
        1e-4, by 2^17 points in 2 T - 2 dimensions.
        """
        T, beta, beta0 = self.problem.n_tokens, self.problem.beta, self.problem.beta0
        rows = np.linalg.cholesky(np.eye(T - 1) + 2)
        x = _points(2 * T - 2, 17, np.random.default_rng(self.seed))
        u0 = self.Q_prime**0.5 * rows @ x[: T - 1]
        u = m / self.Q_prime * u0 + self._spread(m, q) * rows @ x[T - 1 :]
        A0, A = (softmax(np.pad(b * v, ((1, 0), (0, 0))), axis=0) for b, v in ((beta0, u0), (beta, u)))
        return float(T * ((A0 - A) ** 2).sum(axis=0).mean())

    def refined(self):
        """The same with four times as many points, of other scramblings.

        Returns
        -------
        ManyTokenChannel
        """
        return ManyTokenChannel(self.problem, self.log2_points + 2, self.n_scrambles, self.seed + 1)

    def _blocks(self, n):
        return [slice(i, i + _BLOCK) for i in range(0, n, _BLOCK)]

    def _means(self, nodes):
        return nodes.reshape(self.n_scrambles, -1).mean(axis=1)

    def _spread(self, m, q):
        """Standard deviation of the part of the cavity field that is independent of z0."""
        variance = q - m**2 / self.Q_prime
        if not (q >= 0 and variance > -1e-12 * q - 1e-300):
            raise FloatingPointError(f"m = {m}, q = {q}: must satisfy m^2 <= Q' q with Q' = {self.Q_prime}")
        return max(variance, 0.0) ** 0.5

    def _descend(self, y, omega, Sigma, points=slice(None)):
        target = self.target[..., points]
        parts = [
            descend(y[:, b], omega[:, b], target[..., b], self.basis, self.problem.beta, Sigma)
            for b in self._blocks(y.shape[1])
        ]
        return np.concatenate([y[:, :0], *parts], axis=1)

    def _lowest(self, omega, overlaps):
        """The lowest of the minima reached from the last one and from the starts.

        While the overlaps stay within some percent of those of the last search, only points are searched again where
        different minima were found then.
        """
        beta, Sigma = self.problem.beta, overlaps.Sigma
        y = self._descend(omega if self.y is None else self.y, omega, Sigma)
        if 2 * beta**2 * Sigma * MIN_CURVATURE > -1:  # convex: the rows of z have twice the square of y
            return y
        near = self._searched is not None and np.allclose(overlaps, self._searched, rtol=_NEAR, atol=0)
        points = self._rivals if near else np.arange(y.shape[1])
        others = [
            self._descend(start[:, points], omega[:, points], Sigma, points)
            for start in (omega, self.problem.beta0 / beta * self.z0, (omega + self.z0) / 2)
        ]
        if not near:
            apart = [np.abs(other - y).max(axis=0) > 1e-6 for other in others]
            self._searched, self._rivals = overlaps, np.flatnonzero(np.any(apart, axis=0))
        wells = [y[:, points], *others]
        values = [
            Sigma * loss(well, self.target[..., points], self.basis, beta)
            + ((well - omega[:, points]) ** 2).sum(axis=0) / 2
            for well in wells
        ]
        y[:, points] = np.choose(np.argmin(values, axis=0), wells)
        return y

    def _integrands(self, omega, Sigma, block):
        """What is averaged, at the points of a block, in the order of Averages."""
        beta, beta0 = self.problem.beta, self.problem.beta0
        y, z0, omega, target = self.y[:, block], self.z0[:, block], omega[:, block], self.target[..., block]
        g, H = loss_derivatives(y, target, self.basis, beta)
        K = target_derivative(y, target, self.basis, beta, beta0)
        H, K = np.moveaxis(H, -1, 0), np.moveaxis(K, -1, 0)
        response = np.linalg.inv(np.eye(len(y)) + Sigma * H)
        return np.stack([
            loss(y, target, self.basis, beta),
            (g * g).sum(axis=0),
            (omega * g).sum(axis=0),
            (z0 * g).sum(axis=0),
            np.einsum("nij,nji->n", response, H),
            np.einsum("nij,nji->n", response, K),
        ])  # fmt: skip


def _points(dimension, log2_points, rng):
    """Gaussian points (dimension, N) of one scrambling, with exact first and second moments."""
    x = norm.ppf(qmc.Sobol(dimension, seed=rng).random_base2(log2_points)).T
    x -= x.mean(axis=1, keepdims=True)
    return np.linalg.solve(np.linalg.cholesky(x @ x.T / x.shape[1]), x)
