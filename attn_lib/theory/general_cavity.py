r"""Averages over the cavity fields of one sample of the general layer, by quasi-Monte Carlo.

The teacher fields :math:`h^\star_\ell\sim N(0,\tau_\ell I_t)` are drawn first, then the cavity fields

.. math::

    w_\ell = m_\ell + \theta_\ell h^\star_\ell/\tau_\ell + C_\ell^{1/2}\zeta_\ell, \qquad
    C_\ell = q_\ell - \theta_\ell\theta_\ell^\top/\tau_\ell, \qquad g_\ell = V_\ell^{-1}(z_\ell-w_\ell),

at scrambled Sobol points that come in pairs :math:`\pm\zeta`: what is even in :math:`\zeta` then drops out of
:math:`E[g\zeta^\top]` exactly, and with it most of its noise. The points stay the same during an iteration, so the
wells found for one set of overlaps are where the search begins for the next.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from attn_lib.theory.general_prox import attention, loss, wells

__all__ = ["Averages", "Nodes", "Overlaps"]

_WELLS = 4  # kept from one set of overlaps to the next
_TRIALS = 6  # random starts of the first search
_BLOCK = 4096  # nodes handled at a time, sized for the processor's cache


class Overlaps(NamedTuple):
    """Order parameters of each token: q_l (L, r, r), m_l (L, r), theta_l (L, r, t), response V_l (L, r, r)."""

    q: np.ndarray
    m: np.ndarray
    theta: np.ndarray
    V: np.ndarray


class Averages(NamedTuple):
    """Gaussian averages that the state evolution needs, token by token."""

    g: np.ndarray  # (L, r)
    g_g: np.ndarray  # (L, r, r)
    g_teacher: np.ndarray  # g h*^T, (L, r, t)
    response: np.ndarray  # E[dg/dw], as g zeta^T C^(-1/2) by Stein's lemma, (L, r, r), symmetric
    moreau: float
    loss_at_prox: float
    loss_at_cavity: float  # test error: a fresh sample sees h distributed as w


class Nodes:
    """One scrambling of the Sobol points, with the target of each and the wells found there so far.

    With N = 2 n_points nodes: ``tau`` (L,) token variances; ``zeta`` (L, r, N) noise and ``star`` (L, t, N) teacher
    fields; ``T`` (L, L, N) target mixing; ``found`` (4, L, r, N) wells, the deepest first, None before the first call;
    ``loss_at_zero`` the mean loss of a student with Q = 0.

    Parameters
    ----------
    problem : GeneralAttention
    n_points : int
        Sobol points, a power of 2; each stands for two nodes.
    seed : int or numpy Generator
        Of the scrambling and of the starts of the first search.
    """

    def __init__(self, problem, n_points, seed):
        L, r, t = problem.n_tokens, problem.rank, problem.teacher_rank
        self.rng = np.random.default_rng(seed)
        self.tau = np.array(problem.token_variances)
        uniform = qmc.Sobol(L * (r + t), rng=self.rng).random(n_points)
        normal = ndtri(np.clip(uniform, 1e-16, 1 - 1e-16)).T.reshape(L, r + t, n_points)
        zeta = normal[:, t:]
        self.zeta = np.concatenate([zeta, -zeta], axis=-1)
        self.star = np.sqrt(self.tau)[:, None, None] * np.tile(normal[:, :t], 2)
        semantic = (1 - problem.omega) * attention(self.star)
        self.T = semantic + problem.omega * np.array(problem.A)[..., None]
        self.loss_at_zero = float(loss(np.zeros_like(self.zeta), self.T, self.tau).mean())
        self.found = None

    def fields(self, overlaps):
        """Student fields of a fresh sample and of a training sample.

        Parameters
        ----------
        overlaps : Overlaps
            V_l and C_l positive definite.

        Returns
        -------
        w, z : array, shape (L, r, N)
            Cavity fields and proximal points.
        moreau : array, shape (N,)

        Raises
        ------
        FloatingPointError
            V_l or C_l is not positive definite.
        """
        _roots(overlaps.V, "V")
        drift = overlaps.theta / self.tau[:, None, None]
        noise = np.einsum("lij,ljn->lin", self._root(overlaps), self.zeta)
        w = overlaps.m[..., None] + np.einsum("lit,ltn->lin", drift, self.star) + noise
        return w, *self._deepest(w, np.linalg.inv(overlaps.V))

    def averages(self, overlaps):
        """All averages at given overlaps.

        Parameters
        ----------
        overlaps : Overlaps
            As for :meth:`fields`.

        Returns
        -------
        Averages
        """
        w, z, moreau = self.fields(overlaps)
        root, V_inverse = self._root(overlaps), np.linalg.inv(overlaps.V)
        g = np.einsum("lij,ljn->lin", V_inverse, z - w)
        response = _outer(g, self.zeta) @ np.linalg.inv(root)
        return Averages(
            g=g.mean(axis=-1),
            g_g=_outer(g, g),
            g_teacher=_outer(g, self.star),
            response=(response + response.transpose(0, 2, 1)) / 2,
            moreau=float(moreau.mean()),
            loss_at_prox=float(loss(z, self.T, self.tau).mean()),
            loss_at_cavity=float(loss(w, self.T, self.tau).mean()),
        )

    def _root(self, overlaps):
        q, _, theta, _ = overlaps
        return _roots(q - theta @ theta.transpose(0, 2, 1) / self.tau[:, None, None], "q - theta theta^T / tau")

    def _deepest(self, w, V_inverse):
        """Proximal points and Moreau values; the wells are remembered as starts of the next search."""
        if self.found is None:
            scales = (0.5 + np.sqrt((w**2).mean())) * np.linspace(0.5, 2, _TRIALS)[:, None, None, None]
            self.found = np.concatenate([w[None], scales * self.rng.standard_normal((_TRIALS, *w.shape))])
        blocks = [slice(i, i + _BLOCK) for i in range(0, w.shape[-1], _BLOCK)]
        parts = [wells(self.found[..., b], w[..., b], self.T[..., b], V_inverse, self.tau, _WELLS) for b in blocks]
        self.found = np.concatenate([z for z, _ in parts], axis=-1)
        return self.found[0], np.concatenate([value for _, value in parts])


def _outer(a, b):
    """Mean of a_l b_l^T over the nodes, shape (L, rows of a, rows of b)."""
    return a @ b.transpose(0, 2, 1) / a.shape[-1]


def _roots(matrices, name):
    """Symmetric square roots of positive definite matrices."""
    values, vectors = np.linalg.eigh(matrices)
    if values.min() <= 0:
        raise FloatingPointError(f"{name}: smallest eigenvalue {values.min():.3g} must be positive")
    return (vectors * np.sqrt(values)[:, None]) @ vectors.transpose(0, 2, 1)
