"""One update of the state evolution of the general layer, and its iteration to a fixed point on one set of nodes.

:mod:`attn_lib.theory.general_layer` states the equations and averages over sets of nodes.
"""

from typing import NamedTuple

import numpy as np

from attn_lib.fixed_point import ConvergenceError, anderson
from attn_lib.theory.general_ansatz import Hats
from attn_lib.theory.general_cavity import Overlaps

__all__ = ["State", "conjugates", "iterate", "train_loss", "updated"]


class State(NamedTuple):
    """A fixed point on one set of nodes; ``values`` are its train loss, test error and their parts."""

    overlaps: Overlaps
    hats: Hats
    values: dict
    residual: float
    n_iter: int


def conjugates(problem, overlaps, averages):
    """Conjugate order parameters: the first half of an update.

    Parameters
    ----------
    problem : GeneralAttention
    overlaps : Overlaps
    averages : Averages
        At these overlaps.

    Returns
    -------
    Hats
    """
    tau = np.array(problem.token_variances)[:, None, None]
    V_hat = -problem.alpha * averages.response
    return Hats(
        q_hat=problem.alpha * averages.g_g,
        m_hat=problem.alpha * averages.g,
        theta_hat=(problem.alpha * averages.g_teacher + V_hat @ overlaps.theta) / tau,
        V_hat=V_hat,
    )


def updated(problem, hats):
    """New overlaps from the conjugates: the second half of an update.

    Parameters
    ----------
    problem : GeneralAttention
    hats : Hats

    Returns
    -------
    Overlaps

    Raises
    ------
    FloatingPointError
        When lambda + sum_l s_lg V_hat_l is not positive definite.
    """
    pi, s, D_inverse, b, B = _eigenspaces(problem, hats)
    return Overlaps(
        q=np.einsum("g,lg,gij->lij", pi, s, D_inverse @ B @ D_inverse),
        m=np.einsum("g,gij,lk,kj->li", pi, D_inverse, np.array(problem.positions), hats.m_hat),
        theta=np.einsum("g,lg,git->lit", pi, s, D_inverse @ b),
        V=np.einsum("g,lg,gij->lij", pi, s, D_inverse),
    )


def train_loss(problem, overlaps, hats, moreau):
    r"""Minimum of the empirical risk divided by d, stationary in all its arguments at a fixed point.

    .. math::

        \alpha M - \sum_\ell\Big[\tfrac12\mathrm{Tr}(\hat V_\ell q_\ell - \hat q_\ell V_\ell)
        - \hat m_\ell\cdot m_\ell - \mathrm{Tr}\,\hat\theta_\ell^\top\theta_\ell\Big]
        - \tfrac12\sum_g\pi_g\mathrm{Tr}\,D_g^{-1}B_g

    Parameters
    ----------
    problem : GeneralAttention
    overlaps : Overlaps
    hats : Hats
    moreau : float
        Mean M of the Moreau envelope at the overlaps.

    Returns
    -------
    float
    """
    pi, _, D_inverse, _, B = _eigenspaces(problem, hats)
    return float(
        problem.alpha * moreau
        - (np.sum(hats.V_hat * overlaps.q) - np.sum(hats.q_hat * overlaps.V)) / 2
        + np.sum(hats.m_hat * overlaps.m)
        + np.sum(hats.theta_hat * overlaps.theta)
        - np.einsum("g,gij,gji->", pi, D_inverse, B) / 2
    )


def iterate(ansatz, hats, nodes):
    """Fixed point on one branch and one set of nodes.

    Parameters
    ----------
    ansatz : Ansatz
    hats : Hats
        Where to begin. The unknowns are the hats: any of them with D_g > 0 belong to a possible Q.
    nodes : Nodes

    Returns
    -------
    State

    Raises
    ------
    ConvergenceError
        ``partial`` is the best Hats seen; or the point found when its risk is above that of Q = 0, as where the
        positions saturate the attention.

    Accuracy
    --------
    The residual is below 8 / (number of nodes), rarely up to 5 times that: averages over nodes jump when one of them
    changes wells, so that a point may be fixed only up to such a jump.
    """
    problem = ansatz.problem
    start, kind = ansatz.to_vector(hats)
    scale = np.sqrt(np.bincount(kind, start**2, 4) / np.maximum(np.bincount(kind, minlength=4), 1))[kind]
    latest = None  # the iteration ends on a point that it has just updated

    def update(x):
        nonlocal latest
        old = ansatz.to_hats(x * scale)
        overlaps = updated(problem, old)
        averages = nodes.averages(overlaps)
        new = ansatz.aligned(conjugates(problem, overlaps, averages), old)
        latest = overlaps, old, averages
        return ansatz.to_vector(new)[0] / scale

    tol = 8 / nodes.zeta.shape[-1]
    try:
        found = anderson(update, start / scale, tol=tol, far=0.15, max_iter=100, max_step=0.25)
    except ConvergenceError as error:
        found = error.partial
        if found.residual > 5 * tol:
            raise ConvergenceError(f"{problem}: {error}", ansatz.to_hats(found.x * scale)) from error
        update(found.x)
    overlaps, hats, averages = latest
    pi, _, D_inverse, _, B = _eigenspaces(problem, hats)
    values = {
        "train_loss": train_loss(problem, overlaps, hats, averages.moreau),
        "test_error": averages.loss_at_cavity,
        "moreau": averages.moreau,
        "loss_at_prox": averages.loss_at_prox,
        "penalty": float(problem.lam / 2 * np.einsum("g,gij,gji->", pi, D_inverse @ B, D_inverse)),
    }
    if values["train_loss"] > problem.alpha * nodes.loss_at_zero:
        message = f"{problem}: fixed point above the risk of Q = 0, at m up to {np.abs(overlaps.m).max():.2g}"
        raise ConvergenceError(message, hats)
    return State(overlaps, hats, values, found.residual, found.n_iter)


def _eigenspaces(problem, hats):
    """Weights pi_g, eigenvalues s_lg, and D_g^-1, b_g, B_g of each eigenspace g of the covariances."""
    pi, s, P = (np.array(x) for x in (problem.spectrum_weights, problem.spectrum_values, problem.positions))
    D = problem.lam * np.eye(problem.rank) + np.einsum("lg,lij->gij", s, hats.V_hat)
    if np.linalg.eigvalsh(D).min() <= 0:
        raise FloatingPointError("lambda + sum_l s_lg V_hat_l must be positive definite")
    b = np.einsum("lg,lit->git", s, hats.theta_hat)
    positional = np.einsum("lk,li,kj->ij", P, hats.m_hat, hats.m_hat)
    B = np.einsum("lg,lij->gij", s, hats.q_hat) + b @ b.transpose(0, 2, 1) + positional
    return pi, s, np.linalg.inv(D), b, B
