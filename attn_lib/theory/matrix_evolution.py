r"""State evolution of matrix message passing, iteration by iteration.

From :math:`S^0` = ``noise`` times a GOE matrix, that is m = 0 and q the square of ``noise``, one iteration of
:mod:`attn_lib.simulation.matrix_passing` maps the order parameters, in the limit of large d, by the two halves of the
fixed-point equations: first the channel, at the overlaps and the response of iteration t,

.. math::

    (m, q, \Sigma) \to (\hat m, \hat q, \hat\Sigma), \qquad
    \Lambda^t = (1-\gamma)\hat\Sigma^t + \gamma\Lambda^{t-1},

then the prior, with :math:`\Lambda` in place of :math:`\hat\Sigma`: the matrix before the threshold is distributed as
:math:`\hat m S_0+\sqrt{\hat q}Z`, and

.. math::

    S' = \frac{(\hat mS_0 + \sqrt{\hat q}Z - 2\tilde\lambda)_+}{\Lambda} \to (m', q', \Sigma') .

The damping :math:`\gamma`, the weight of the old value, acts on :math:`\Lambda` only. Fixed points do not depend on it.
A small distance between two iterates is multiplied by :func:`~attn_lib.theory.matrix_replicon.growth`.
"""

from dataclasses import dataclass

import numpy as np

from attn_lib._checks import check_integer, check_number
from attn_lib.fixed_point import ConvergenceError
from attn_lib.theory.attention_channel import conjugates
from attn_lib.theory.matrix_replicon import growth
from attn_lib.theory.single_head import channel_of
from attn_lib.theory.spectral_prior import Hats, Overlaps, prior

__all__ = ["MatrixEvolution", "evolve"]


@dataclass(frozen=True, kw_only=True)
class MatrixEvolution:
    r"""Order parameters of matrix message passing in the limit of large d.

    Parameters
    ----------
    problem : SingleHead
    damping : float
    m, q, Sigma : array (t,)
        Of the iterates t = 0, ..., n_iter.
    test_error : array (t,)
        Of a student with these overlaps, on fresh samples with noisy labels.
    m_hat, q_hat, Sigma_hat : array (t - 1,)
        Of the iterations: the matrix before the threshold that makes S^{t+1} is distributed as
        :math:`\hat m S_0+\sqrt{\hat q}Z`.
    rank : array (t - 1,)
        Of S^{t+1}, divided by d.
    growth : array (t - 1,)
        Factor by which iteration t multiplies a small :math:`\mathrm{tr}(S_a-S_b)^2`; at the fixed point the replicon.
    quadrature_error : float
        Largest relative change of m, q or Sigma when the rule of the channel is refined.
    """

    problem: object
    damping: float
    m: np.ndarray
    q: np.ndarray
    Sigma: np.ndarray
    test_error: np.ndarray
    m_hat: np.ndarray
    q_hat: np.ndarray
    Sigma_hat: np.ndarray
    rank: np.ndarray
    growth: np.ndarray
    quadrature_error: float


def evolve(problem, *, n_iter, noise=0.0, Sigma=1.0, damping=0.0):
    """State evolution of :func:`~attn_lib.simulation.matrix_amp.train_by_matrix_amp`, with the same arguments.

    Parameters
    ----------
    problem : SingleHead
    n_iter : int
        >= 1.
    noise : float
        S^0 is noise times a GOE matrix Z with tr Z^2 = 1, in [0, 1e3].
    Sigma : float
        Response of the first iteration, > 0.
    damping : float
        In [0, 1).

    Returns
    -------
    MatrixEvolution

    Raises
    ------
    ValueError
        An argument out of range.
    ConvergenceError
        A conjugate that is not positive, in some iteration, or a threshold above the whole spectrum; ``partial`` holds
        the overlaps up to there.

    Accuracy
    --------
    1e-4 (see ``quadrature_error``); for more than two tokens 1e-3 or what the field says.

    Source
    ------
    Derived in the chapter on message passing. At no damping one iteration is one sweep of the fixed-point equations of
    arXiv 2509.24914.

    Examples
    --------
    >>> from attn_lib.problems import MarchenkoPastur, SingleHead
    >>> problem = SingleHead(alpha=2.0, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> evolve(problem, n_iter=3).m.round(2)
    array([0.  , 0.77, 0.99, 1.1 ])
    """
    check_integer("n_iter", n_iter, 1, 10_000)
    check_number("noise", noise, "a number in [0, 1e3]", lambda v: 0 <= v <= 1e3)
    check_number("Sigma", Sigma, "a finite number > 0", lambda v: v > 0)
    check_number("damping", damping, "a number in [0, 1)", lambda v: 0 <= v < 1)
    channel = channel_of(problem)
    first = Overlaps(0.0, float(noise) ** 2, float(Sigma))
    (coarse, *_), (overlaps, hats, rank, factors) = (
        _path(c, first, n_iter, damping) for c in (channel, channel.refined())
    )
    change = np.abs(overlaps - coarse).max(axis=0) / np.abs(overlaps).max(axis=0)
    return MatrixEvolution(
        problem=problem,
        damping=damping,
        **dict(zip(Overlaps._fields, overlaps.T, strict=True)),
        test_error=np.array([channel.test_error(m, q) for m, q, _ in overlaps]),
        **dict(zip(Hats._fields, hats.T, strict=True)),
        rank=rank,
        growth=factors,
        quadrature_error=float(change.max()),
    )


def _path(channel, overlaps, n_iter, damping):
    """Overlaps, conjugates, ranks and growth factors, one row an iteration."""
    problem, scale = channel.problem, None
    path, all_hats, rank, factors = [overlaps], [], [], []
    for t in range(n_iter):
        try:
            hats = conjugates(channel, overlaps, channel.averages(overlaps))
            scale = hats.Sigma_hat if scale is None else (1 - damping) * hats.Sigma_hat + damping * scale
            made = prior(problem, hats._replace(Sigma_hat=scale))
        except FloatingPointError as error:
            raise ConvergenceError(f"iteration {t}: {error}", path) from error
        if made.overlaps.Sigma == 0:
            raise ConvergenceError(f"iteration {t}: the threshold is above the whole spectrum, S = 0", path)
        factors.append(growth(channel, overlaps.Sigma, scale, made.delta, made.epsilon))
        overlaps = made.overlaps
        path.append(overlaps)
        all_hats.append(hats)
        rank.append(made.rank)
    return np.array(path), np.array(all_hats), np.array(rank), np.array(factors)
