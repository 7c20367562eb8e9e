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
        self.problem, self.n_scrambles = problem, n_scrambles
        self.basis = field_basis(problem.n_tokens)
        self.k = len(self.basis)
        seeds = np.random.default_rng(seed).spawn(n_scrambles)
        self.points = np.concatenate([_points(2 * self.k, log2_points, rng) for rng in seeds], axis=1)
        self._wells = None

    def averages(self, overlaps):
        """Averages at the overlaps.

        Parameters
        ----------
        overlaps : Overlaps

        Returns
        -------
        Averages

        Raises
        ------
        FloatingPointError
            The overlaps are not those of two Gaussians, or a proximal operator was not found.
        """
        return Averages(*map(float, np.mean(self.scrambled_averages(overlaps), axis=1)))

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

    def scrambled_averages(self, overlaps):
        """Averages over each scrambling.

        Parameters
        ----------
        overlaps : Overlaps

        Returns
        -------
        Averages
            Of arrays, shape (n_scrambles,).
        """
        z0, omega, target = self._fields(overlaps.m, overlaps.q)
        y = self._prox(overlaps, z0, omega, target)
        parts = [self._integrands(y, z0, omega, target, overlaps.Sigma, block) for block in self._blocks()]
        nodes = np.concatenate(parts, axis=1)
        return Averages(*nodes.reshape(len(nodes), self.n_scrambles, -1).mean(axis=2))

    def test_error(self, m, q):
        """Error on a fresh sample with noisy label, E sum_ab (softmax(beta0 z0) - softmax(beta omega))_ab^2.

        Parameters
        ----------
        m, q : float

        Returns
        -------
        array, shape (n_scrambles,)
            One average for each scrambling.
        """
        _, omega, target = self._fields(m, q)
        nodes = np.concatenate([
            loss(omega[:, b], target[..., b], self.basis, self.problem.beta) for b in self._blocks()
        ])  # fmt: skip
        return nodes.reshape(self.n_scrambles, -1).mean(axis=1)

    def _blocks(self):
        return [slice(i, i + _BLOCK) for i in range(0, self.points.shape[1], _BLOCK)]

    def _fields(self, m, q):
        """Fields of target and cavity, and the target's attention, at all points."""
        Q = self.problem.target.second_moment + self.problem.Delta / 2
        if not (Q > 0 and q > 0 and Q * q >= m**2):
            raise FloatingPointError(f"m = {m}, q = {q}: must satisfy q > 0 and m^2 <= Q' q with Q' = {Q}")
        common, own = self.points[: self.k], self.points[self.k :]
        omega = q**0.5 * common
        z0 = m / q**0.5 * common + (Q - m**2 / q) ** 0.5 * own
        return z0, omega, attention(z0, self.basis, self.problem.beta0)

    def _prox(self, overlaps, z0, omega, target):
        """The lowest of the minima reached from the starts, at all points."""
        m, q, Sigma = overlaps
        beta = self.problem.beta
        convex = 2 * beta**2 * Sigma * MIN_CURVATURE > -1  # E_i y_i has twice the square of y in its rows
        starts = [omega] if convex else [omega, z0 * (self.problem.beta0 / beta), (omega + z0) / 2]
        if self._wells is not None and len(self._wells) == len(starts):
            starts = self._wells
        self._wells = [
            np.concatenate(
                [
                    descend(y[:, b], omega[:, b], target[..., b], self.basis, beta, Sigma)
                    for b in self._blocks()
                ],
                axis=1,
            )
            for y in starts
        ]  # fmt: skip
        if convex:
            return self._wells[0]
        values = [loss(y, target, self.basis, beta) + ((y - omega) ** 2).sum(axis=0) / (2 * Sigma) for y in self._wells]
        return np.choose(np.argmin(values, axis=0), self._wells)

    def _integrands(self, y, z0, omega, target, Sigma, block):
        """What is averaged, at the points of a block, in the order of Averages."""
        problem = self.problem
        y, z0, omega, target = y[:, block], z0[:, block], omega[:, block], target[..., block]
        g, H = loss_derivatives(y, target, self.basis, problem.beta)
        K = target_derivative(y, target, self.basis, problem.beta, problem.beta0)
        H, K = np.moveaxis(H, -1, 0), np.moveaxis(K, -1, 0)
        response = np.linalg.inv(np.eye(self.k) + Sigma * H)
        return np.stack([
            loss(y, target, self.basis, problem.beta),
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
