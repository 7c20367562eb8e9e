"""State evolution of a single head of full rank (arXiv 2509.24914): contract, the solver follows."""

from dataclasses import dataclass

from attn_lib.theory.spectral_prior import Hats, Overlaps

__all__ = ["Hats", "Overlaps", "Solution", "solve", "solve_direct", "test_error"]


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A fixed point of the state evolution with everything that is known about it.

    Attributes
    ----------
    problem : SingleHead
    overlaps, hats : Overlaps, Hats
    eta, delta, epsilon : float
        The learned S is distributed as eta ReLU(S0 + delta Z - epsilon).
    rank : float
        rank(W)/d.
    test_error : float
        E sum_ab (y - A)^2 on a fresh sample with noisy label.
    train_loss, penalty : float
        Data term and lam ``|W|^2``, divided by d^2.
    potential, residual, n_iter, converged, quadrature_error, form
        As documented with the solver.
    """

    problem: object
    overlaps: Overlaps
    hats: Hats
    eta: float
    delta: float
    epsilon: float
    rank: float
    test_error: float
    train_loss: float
    penalty: float
    potential: float
    residual: float
    n_iter: int
    converged: bool
    quadrature_error: dict
    form: str


def solve(problem, *, accuracy=1e-4, start=None):
    """Fixed point of the state evolution.

    Parameters
    ----------
    problem : SingleHead
    accuracy : float
    start : Hats, optional
        Where to begin.

    Returns
    -------
    Solution
    """
    raise NotImplementedError


def solve_direct(problem, *, accuracy=1e-4):
    """The same for a symmetric S trained directly.

    Parameters
    ----------
    problem : SingleHead
    accuracy : float

    Returns
    -------
    Solution
    """
    raise NotImplementedError


def test_error(problem, m, q):
    """Test error as a function of the overlaps.

    Parameters
    ----------
    problem : SingleHead
    m, q : float

    Returns
    -------
    float
    """
    raise NotImplementedError
