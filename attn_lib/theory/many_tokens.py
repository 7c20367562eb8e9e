r"""The channel of three and more tokens, by scrambled Sobol points.

In the coordinates of :mod:`attn_lib.theory.many_tokens_prox` the fields of a sample are two vectors with
:math:`k=(T^2+T-2)/2` components each, :math:`(z_0,\omega)_i \sim N(0, [[Q', m],[m, q]])` independently, and

.. math::

    E[g^\top Cg] = E|g|^2, \qquad E\,\mathrm{tr}[C(1+\Sigma HC)^{-1}H] = E\,\mathrm{tr}[(1+\Sigma H)^{-1}H],

with gradient and Hessian in y on the right. The averages run over 2k = T^2 + T - 2 independent Gaussians: 10
dimensions for three tokens, 18 for four. The same points serve at all overlaps, so a fixed point is one of the sample.
"""

import numpy as np
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

_BLOCK = 2048  # nodes handled at a time: their Hessians fit in a cache


class ManyTokenChannel:
    r"""Averages over one sample of T >= 2 tokens, with standard errors.

    The points are ``n_scrambles`` independent scramblings of a Sobol sequence, each turned into Gaussians and then
    shifted and mixed linearly so that its means vanish and its second moments are exact. The scatter between them gives
    the standard errors.

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
    For T = 3, Delta = 0.5 and alpha from 0.1 to 2, relative standard errors of the averages at the defaults (8 x 4096
    points) are below 3e-3. They fall a little faster than the inverse root of the number of points. The prox is the
    lowest of the minima reached from three starts (one where the objective is convex). At beta = 1, Sigma <= 10 and
    q <= 2 no other start found a lower one; at beta = 2 others did for some percent of the points.

    Source
    ------
    arXiv 2509.24914; the coordinates and the rule are ours.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> from attn_lib.theory.spectral_prior import Overlaps
    >>> target = MarchenkoPastur(kappa0=0.5)
    >>> problem = SingleHead(alpha=0.2, lam=0.01, Delta=0.5, kappa=1.0, target=target, n_tokens=3)
    >>> channel = ManyTokenChannel(problem, log2_points=8)
    >>> averages = channel.averages(Overlaps(m=1.4, q=1.5, Sigma=2.0))
    >>> round(averages.loss, 2)
    0.08
    """

    def __init__(self, problem, log2_points=12, n_scrambles=8, seed=0):
        check_integer("log2_points", log2_points, 6, 18)
        check_integer("n_scrambles", n_scrambles, 2, 1024)
        check_integer("seed", seed, 0)
        self.problem, self.log2_points, self.n_scrambles, self.seed = problem, log2_points, n_scrambles, seed
        self.basis = field_basis(problem.n_tokens)
        k = len(self.basis)
        seeds = np.random.default_rng(seed).spawn(n_scrambles)
        points = np.concatenate([_points(2 * k, log2_points, rng) for rng in seeds], axis=1)
        self.Q_prime = problem.target.second_moment + problem.Delta / 2
        self.z0, self.own = self.Q_prime**0.5 * points[:k], points[k:]
        self.target = attention(self.z0, self.basis, problem.beta0)
        self.y = None

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
        omega = self._cavity(overlaps.m, overlaps.q)
        if follow and self.y is not None:
            self.y = self._descend(self.y, omega, overlaps.Sigma)
        else:
            self.y = self._lowest(omega, overlaps.Sigma)
        parts = [self._integrands(omega, overlaps.Sigma, block) for block in self._blocks()]
        return Averages(*(self._means(nodes) for nodes in np.concatenate(parts, axis=1)))

    def test_errors(self, m, q):
        """Error on a fresh sample with noisy label, E sum_ab (softmax(beta0 z0) - softmax(beta omega))_ab^2.

        Parameters
        ----------
        m, q : float

        Returns
        -------
        array, shape (n_scrambles,)
            One average for each scrambling.
        """
        return self._means(self._loss(self._cavity(m, q)))

    def refined(self):
        """The same with four times as many points, of other scramblings.

        Returns
        -------
        ManyTokenChannel
        """
        return ManyTokenChannel(self.problem, self.log2_points + 2, self.n_scrambles, self.seed + 1)

    def _blocks(self):
        return [slice(i, i + _BLOCK) for i in range(0, self.z0.shape[1], _BLOCK)]

    def _means(self, nodes):
        return nodes.reshape(self.n_scrambles, -1).mean(axis=1)

    def _loss(self, y):
        return np.concatenate([
            loss(y[:, b], self.target[..., b], self.basis, self.problem.beta) for b in self._blocks()
        ])  # fmt: skip

    def _cavity(self, m, q):
        """Cavity fields at all points."""
        spread = q - m**2 / self.Q_prime
        if not (q > 0 and spread > -1e-12 * q):
            raise FloatingPointError(f"m = {m}, q = {q}: must satisfy m^2 <= Q' q with Q' = {self.Q_prime}")
        return m / self.Q_prime * self.z0 + max(spread, 0.0) ** 0.5 * self.own

    def _descend(self, y, omega, Sigma):
        beta = self.problem.beta
        parts = [
            descend(y[:, b], omega[:, b], self.target[..., b], self.basis, beta, Sigma) for b in self._blocks()
        ]  # fmt: skip
        return np.concatenate(parts, axis=1)

    def _lowest(self, omega, Sigma):
        """The lowest of the minima reached from the starts."""
        beta, beta0 = self.problem.beta, self.problem.beta0
        last = () if self.y is None else (self.y,)
        if 2 * beta**2 * Sigma * MIN_CURVATURE > -1:  # convex: the rows of z have twice the square of y
            return self._descend(last[0] if last else omega, omega, Sigma)
        wells = [self._descend(y, omega, Sigma) for y in (omega, beta0 / beta * self.z0, (omega + self.z0) / 2, *last)]
        values = [self._loss(y) + ((y - omega) ** 2).sum(axis=0) / (2 * Sigma) for y in wells]
        return np.choose(np.argmin(values, axis=0), wells)

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
