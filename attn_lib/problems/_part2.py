"""The problem of Part II (arXiv 2509.24914): a single head of full rank."""

from dataclasses import dataclass

from attn_lib._checks import as_python_numbers, check_integer, check_number
from attn_lib.spectra.laws import FiniteRank, MarchenkoPastur, PowerLaw

__all__ = ["SingleHead"]

TARGETS = (MarchenkoPastur, PowerLaw, FiniteRank)


@dataclass(frozen=True, kw_only=True)
class SingleHead:
    r"""Tied attention of full rank, learned from :math:`n=\alpha d^2` samples of a layer of the same form.

    .. math::

        y = \mathrm{softmax}(\beta_0(z(S_0) + \xi)), \qquad A = \mathrm{softmax}(\beta z(S)), \qquad
        z_{ab}(S) = \frac{x_a^\top S x_b - \delta_{ab}\mathrm{Tr} S}{\sqrt d}, \qquad S = \frac{WW^\top}{\sqrt{pd}},

    by rows, with tokens :math:`x_a\sim N(0, I_d)`, a symmetric noise :math:`\xi` of variance Delta on the diagonal
    and Delta/2 off it, weights W (d x p), p = kappa d, and the empirical risk
    :math:`\sum_\mu\sum_{ab}(y_{ab}-A_{ab})^2 + \lambda|W|^2`.

    Parameters
    ----------
    alpha : float
        Sample complexity n/d^2, > 0. This and the other numbers > 0 may be from 1e-12 to 1e12.
    lam : float
        Weight decay lambda, > 0.
    Delta : float
        Variance of the label noise, from 0 to 1e12.
    kappa : float
        Width p/d of the student, > 0.
    target : MarchenkoPastur, PowerLaw or FiniteRank
        Law of the eigenvalues of S0, not all of them zero.
    n_tokens : int
        T >= 2.
    beta, beta0 : float
        Inverse temperatures of student and target, > 0.

    Raises
    ------
    ValueError
        Naming the field, the value and the allowed range.

    Source
    ------
    arXiv 2509.24914, the attention-indexed model and its tied student.

    Examples
    --------
    >>> problem = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    >>> problem.target.second_moment
    1.5
    """

    alpha: float
    lam: float
    Delta: float
    kappa: float
    target: MarchenkoPastur | PowerLaw | FiniteRank
    n_tokens: int = 2
    beta: float = 1.0
    beta0: float = 1.0

    def __post_init__(self):
        for name in ("alpha", "lam", "kappa", "beta", "beta0"):
            allowed = "a finite number > 0, from 1e-12 to 1e12"
            check_number(name, getattr(self, name), allowed, lambda v: 1e-12 <= float(v) <= 1e12)
        check_number("Delta", self.Delta, "a finite number >= 0, up to 1e12", lambda v: 0 <= float(v) <= 1e12)
        check_integer("n_tokens", self.n_tokens, 2)
        as_python_numbers(self, "alpha", "lam", "Delta", "kappa", "beta", "beta0", n_tokens=int)
        if not isinstance(self.target, TARGETS) or not 0 < self.target.second_moment < float("inf"):
            names = ", ".join(target.__name__ for target in TARGETS)
            allowed = f"one of {names}, with an eigenvalue > 0 and a finite second moment"
            raise ValueError(f"target = {self.target!r}: must be {allowed}")

    @property
    def noisy_second_moment(self):
        """Second moment Q' = Q0 + Delta/2 of the target with the noise of its labels, ``tr S0^2 + Delta/2``."""
        return self.target.second_moment + self.Delta / 2

    @property
    def nuclear_penalty(self):
        """The weight sqrt(kappa) lam of the penalty on S, as ``lam |W|^2 / d^2 = sqrt(kappa) lam tr S``."""
        return self.kappa**0.5 * self.lam
