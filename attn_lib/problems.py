"""Problems: frozen, validated parameters. Theory and simulation both start here, and share nothing else."""

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

__all__ = ["PositionalSemantic"]


@dataclass(frozen=True, kw_only=True)
class PositionalSemantic:
    r"""The solvable attention layer of Part I: two tokens, rank one, tied query and key.

    .. math::

        y = T\,x, \quad
        T = (1-\omega)\,\mathrm{softmax}(h^\star h^{\star\top}) + \omega A, \quad
        h^\star_\ell = x_\ell\cdot Q^\star/\sqrt d, \qquad
        f_Q(x) = \mathrm{softmax}(h h^\top)\,(x+p), \quad h_\ell = (x_\ell+p_\ell)\cdot Q/\sqrt d,

    with tokens :math:`x_\ell\sim N(0,\sigma^2 I_d)`, positions :math:`p_1=-p_2=1_d/\sqrt d`, target
    :math:`Q^\star\sim N(0,I_d)`, and the empirical risk
    :math:`\sum_{\mu=1}^n |y^\mu-f_Q(x^\mu)|^2/(2d) + (\lambda/2)|Q|^2` with :math:`n=\alpha d` samples.

    Parameters
    ----------
    alpha : float
        Sample complexity n/d, > 0.
    omega : float
        Weight of the positional part of the target, in [0, 1].
    sigma : float
        Standard deviation of one token component, > 0.
    lam : float
        Ridge penalty lambda, > 0.
    A : 2 x 2 nested sequence
        Row-stochastic mixing matrix of the positional part of the target.

    Raises
    ------
    ValueError
        Naming the field, the value and the allowed range.

    Source
    ------
    arXiv 2402.03902: the model of the sections on two tokens and rank one; defaults as in its figure 2.

    Examples
    --------
    >>> PositionalSemantic(alpha=1.5, omega=0.3).rho
    0.25
    """

    alpha: float
    omega: float
    sigma: float = 0.5
    lam: float = 0.01
    A: tuple = ((0.6, 0.4), (0.4, 0.6))

    def __post_init__(self):
        for name in ("alpha", "sigma", "lam"):
            _check_real(name, getattr(self, name), "a finite number > 0", lambda v: v > 0)
        _check_real("omega", self.omega, "a number in [0, 1]", lambda v: 0 <= v <= 1)
        object.__setattr__(self, "A", _row_stochastic(self.A))

    @property
    def rho(self):
        """Variance sigma**2 of a teacher field h*."""
        return self.sigma**2


def _check_real(name, value, allowed, is_allowed):
    is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not is_allowed(value):
        raise ValueError(f"{name} = {value!r}: must be {allowed}")


def _row_stochastic(A):
    try:
        matrix = np.array(A, dtype=float)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape != (2, 2) or not (matrix >= 0).all() or not np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-12):
        raise ValueError(f"A = {A!r}: must be a 2 x 2 matrix of entries >= 0 whose rows sum to 1")
    return tuple(tuple(float(a) for a in row) for row in matrix)
