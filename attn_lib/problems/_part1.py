"""The problems of Part I (arXiv 2402.03902): position or meaning."""

from dataclasses import dataclass

import numpy as np

from attn_lib._checks import check_integer, check_number, nested_floats

__all__ = ["GeneralAttention", "PositionalSemantic"]


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
            check_number(name, getattr(self, name), "a finite number > 0", lambda v: v > 0)
        check_number("omega", self.omega, "a number in [0, 1]", lambda v: 0 <= v <= 1)
        object.__setattr__(self, "A", _row_stochastic(self.A, 2))

    @property
    def rho(self):
        """Variance sigma**2 of a teacher field h*."""
        return self.sigma**2


@dataclass(frozen=True, kw_only=True)
class GeneralAttention:
    r"""The attention layer of Part I with any number of tokens, ranks and token covariances.

    .. math::

        T = (1-\omega)\,\mathrm{softmax}(h^\star h^{\star\top}) + \omega A, \quad
        h^\star_\ell = Q^{\star\top} x_\ell/\sqrt d \in R^t, \qquad
        S = \mathrm{softmax}(h h^\top), \quad h_\ell = Q^\top(x_\ell+p_\ell)/\sqrt d \in R^r,

    with independent tokens :math:`x_\ell\sim N(0,\Sigma_\ell)`, target y = T x, student S (x + p), the entries of
    Q* standard Gaussian and the empirical risk of :class:`PositionalSemantic`. The covariances commute: a fraction
    ``spectrum_weights[g]`` of the d directions has the eigenvalue ``spectrum_values[l][g]`` of the covariance of token
    l. The positions p_l do not single out any of these groups: group g contributes its weight times p_l.p_k to p_l.p_k.

    Parameters
    ----------
    alpha : float
        Sample complexity n/d, > 0.
    omega : float
        Weight of the positional part of the target, in [0, 1].
    A : L x L nested sequence
        Row-stochastic mixing matrix of the positional part of the target; L >= 2 is the number of tokens.
    lam : float
        Ridge penalty lambda of ``(lam / 2) |Q|^2``, > 0.
    rank, teacher_rank : int
        r and t, the numbers of columns of Q and Q*, >= 1.
    spectrum_weights : sequence of G floats
        > 0, sum 1.
    spectrum_values : L x G nested sequence, optional
        Eigenvalues of the token covariances, > 0; by default 0.25 for every token (sigma = 0.5), with G = 1.
    positions : L x L nested sequence, optional
        Gram matrix p_l.p_k, symmetric and positive semidefinite. By default the regular simplex of unit vectors with
        sum 0, which for two tokens is p_1 = -p_2.

    Raises
    ------
    ValueError
        Naming the field, the value and the allowed range.

    Source
    ------
    arXiv 2402.03902, the general model before its specialisation to two tokens and rank one. There the positions may
    have any direction; here they are spread evenly over the eigenspaces.

    Examples
    --------
    >>> layer = GeneralAttention(alpha=1.5, omega=0.3, A=[[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]], rank=2)
    >>> layer.n_tokens, layer.token_variances
    (3, (0.25, 0.25, 0.25))
    """

    alpha: float
    omega: float
    A: tuple
    lam: float = 0.01
    rank: int = 1
    teacher_rank: int = 1
    spectrum_weights: tuple = (1.0,)
    spectrum_values: tuple = None
    positions: tuple = None

    def __post_init__(self):
        for name in ("alpha", "lam"):
            check_number(name, getattr(self, name), "a finite number > 0", lambda v: v > 0)
        check_number("omega", self.omega, "a number in [0, 1]", lambda v: 0 <= v <= 1)
        for name in ("rank", "teacher_rank"):
            check_integer(name, getattr(self, name), 1)
        A = _row_stochastic(self.A)
        n, G = len(A), np.size(self.spectrum_weights)
        values = ((0.25,) * G,) * n if self.spectrum_values is None else self.spectrum_values
        simplex = (np.eye(n) - 1 / n) * n / (n - 1)
        checked = {
            "A": A,
            "spectrum_weights": nested_floats(
                "spectrum_weights",
                self.spectrum_weights,
                "numbers > 0 of sum 1",
                lambda w: w.ndim == 1 and w.size and (w > 0).all() and np.isclose(w.sum(), 1, rtol=0, atol=1e-12),
            ),
            "spectrum_values": nested_floats(
                "spectrum_values",
                values,
                f"{n} x {G} eigenvalues > 0, one row a token, one column a weight",
                lambda v: v.shape == (n, G) and (v > 0).all(),
            ),
            "positions": nested_floats(
                "positions",
                simplex if self.positions is None else self.positions,
                f"a symmetric positive semidefinite {n} x {n} matrix of entries below 1e6",
                lambda P: (
                    P.shape == (n, n)
                    and np.abs(P).max() < 1e6
                    and np.allclose(P, P.T)
                    and np.linalg.eigvalsh(P)[0] >= -1e-12 * P.trace()
                ),
            ),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of_two_tokens(cls, problem):
        """The same layer as a :class:`PositionalSemantic` problem."""
        return cls(
            alpha=problem.alpha,
            omega=problem.omega,
            A=problem.A,
            lam=problem.lam,
            spectrum_values=((problem.rho,), (problem.rho,)),
        )

    @property
    def n_tokens(self):
        """Number of tokens L."""
        return len(self.A)

    @property
    def token_variances(self):
        """Variances Tr Sigma_l / d, for each token that of its components and of its teacher fields."""
        return tuple(float(np.dot(self.spectrum_weights, values)) for values in self.spectrum_values)


def _row_stochastic(A, n=None):
    size = f"{n} x {n}" if n else "L x L (L >= 2)"
    return nested_floats(
        "A",
        A,
        f"a {size} matrix of entries >= 0 whose rows sum to 1",
        lambda a: (
            a.ndim == 2
            and a.shape[0] == a.shape[1]
            and len(a) >= 2
            and n in (None, len(a))
            and (a >= 0).all()
            and np.allclose(a.sum(axis=1), 1, rtol=0, atol=1e-12)
        ),
    )
