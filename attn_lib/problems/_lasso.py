"""The diagonal model of Part II: sparse linear regression, whose spectrum is a list of numbers."""

from dataclasses import dataclass

from attn_lib._checks import as_python_numbers, check_number
from attn_lib.spectra.laws import FiniteRank, PowerLaw

__all__ = ["DiagonalModel"]

TARGETS = (PowerLaw, FiniteRank)


@dataclass(frozen=True, kw_only=True)
class DiagonalModel:
    r"""LASSO: a vector of d entries learned from :math:`n=\alpha d` noisy Gaussian measurements.

    .. math::

        \min_\theta\ \sum_{\mu=1}^n\Big(y_\mu - \frac{x_\mu\cdot\theta}{\sqrt d}\Big)^2 + \lambda\sum_i|\theta_i|,
        \qquad y_\mu = \frac{x_\mu\cdot\theta_*}{\sqrt d} + \sqrt\Delta\,\xi_\mu,

    with :math:`x_\mu\sim N(0, I_d)` and :math:`\xi_\mu\sim N(0, 1)`. The entries of :math:`\theta_*` are the list of
    the target, as the eigenvalues of S0 are for a :class:`SingleHead`.

    Parameters
    ----------
    alpha : float
        Sample complexity n/d, > 0.
    lam : float
        Weight of the l1 norm, from 0 to 1e100. Zero stands for the limit lam -> 0+.
    Delta : float
        Variance of the label noise, from 1e-100 to 1e100.
    target : PowerLaw or FiniteRank
        Its list ``spectrum`` of d numbers is theta*.
    nonnegative : bool
        Whether the student is constrained to theta >= 0, as S is to be positive semidefinite.

    Raises
    ------
    ValueError
        Naming the field, the value and the allowed range.

    Source
    ------
    arXiv 2509.24882 has the LASSO as the diagonal counterpart of quadratic networks; the normalisation is ours.

    Examples
    --------
    >>> DiagonalModel(alpha=0.5, lam=0.1, Delta=0.5, target=PowerLaw(gamma=1.0, d=100)).nonnegative
    False
    """

    alpha: float
    lam: float
    Delta: float
    target: PowerLaw | FiniteRank
    nonnegative: bool = False

    def __post_init__(self):
        check_number("alpha", self.alpha, "a number in [1e-9, 1e9]", lambda v: 1e-9 <= v <= 1e9)
        check_number("lam", self.lam, "a finite number >= 0, up to 1e100", lambda v: 0 <= float(v) <= 1e100)
        allowed = "a finite number > 0, from 1e-100 to 1e100"
        check_number("Delta", self.Delta, allowed, lambda v: 1e-100 <= float(v) <= 1e100)
        as_python_numbers(self, "alpha", "lam", "Delta")
        if not isinstance(self.nonnegative, bool):
            raise ValueError(f"nonnegative = {self.nonnegative!r}: must be True or False")
        if not isinstance(self.target, TARGETS):
            raise ValueError(f"target = {self.target!r}: must be a PowerLaw or a FiniteRank")
